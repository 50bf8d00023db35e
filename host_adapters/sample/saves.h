// A directory of saves:
//
//   DIR/step_00000100/sample.json   what was trained, and how far
//                     optimizer     the optimizer's own checkpoint, a file or a directory, of all
//                                   ranks; it holds the parameters as well (mains, of which they
//                                   are the rounded values)
//
// The optimizer's checkpoint is written last and counts as a whole or not at all: a folder without
// it is the leftover of a killed run and is passed over. Older saves go only when a newer one
// counts.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_SAVES_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_SAVES_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "host_adapters/sample/collective.h"
#include "host_adapters/sample/optimizer.h"

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
};

// By all ranks together; rank 0 writes sample.json and removes older saves. The directory is made
// where it is missing.
void write_save(const std::filesystem::path& directory, std::uint64_t step,
                const RunIdentity& identity, Optimizer& optimizer, Collective& ranks);

// By all ranks together. Loads the newest whole save and returns its step. Throws Error(E_MISSING)
// when there is none, Error(E_MISMATCH) when it is of another run; `note` tells of folders that
// were passed over.
std::uint64_t load_save(const std::filesystem::path& directory, const RunIdentity& identity,
                        Optimizer& optimizer, const std::function<void(std::string)>& note);

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_SAVES_H_
