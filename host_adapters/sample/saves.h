// A directory of saves:
//
//   DIR/step_00000100/sample.json   what was trained, and how far
//                     optimizer     the optimizer's own checkpoint, a file or a directory, of all
//                                   ranks; it holds the parameters as well (mains, of which they
//                                   are the rounded values)
//
// The optimizer's checkpoint is written last and its commit (COMMIT.json of the plugin's; the file
// itself of the resident optimizer's) makes the folder a save. A folder without it is the leftover
// of a killed run and is passed over; whatever else is wrong with a save is an error, never a
// reason to go on from an older one. Older saves go only when a newer one counts.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_SAVES_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_SAVES_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "host_adapters/sample/collective.h"
#include "host_adapters/sample/optimizer.h"
#include "host_adapters/sample/schedule.h"

namespace millpond::sample {

// What must be the same for a resumed run to go on as if it had not stopped.
struct RunIdentity {
  std::string kind;   // "streamed" or "resident"
  std::string model;  // shape, as text
  std::string moments;
  std::uint64_t text = 0;  // fingerprint
  std::uint64_t seed = 0;
  std::uint64_t batch = 0;
  std::uint64_t micro_batches = 0;
  Hyperparameters hyper;
  std::uint64_t steps = 0;  // may grow or shrink, and the learning rates with it: `note` tells
};

// Before the first step, by one process: makes the directory where it is missing, and refuses one
// that has saves unless the run resumes from it. Two runs' saves in one place would be mixed up.
void prepare_saves(const std::filesystem::path& directory, const std::filesystem::path& resume);

// By all ranks together; rank 0 writes sample.json and removes older saves.
void write_save(const std::filesystem::path& directory, std::uint64_t step,
                const RunIdentity& identity, Optimizer& optimizer, Collective& ranks);

// By all ranks together, of any number. Loads the newest save and returns its step. Throws
// Error(E_MISSING) when there is none or one of its files is gone, Error(E_MISMATCH) when it is of
// another run; other hyperparameters are another run unless `other_hyperparameters`. `note` tells
// of folders that were passed over, and of the one that is loaded.
std::uint64_t load_save(const std::filesystem::path& directory, const RunIdentity& identity,
                        bool other_hyperparameters, Optimizer& optimizer,
                        const std::function<void(std::string)>& note);

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_SAVES_H_
