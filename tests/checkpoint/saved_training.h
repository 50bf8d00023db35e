// Saves and loads of the trainings of tests/store, and what is left after a refusal.
#ifndef MILLPOND_TESTS_CHECKPOINT_SAVED_TRAINING_H_
#define MILLPOND_TESTS_CHECKPOINT_SAVED_TRAINING_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/store/training.h"

namespace millpond::tests {

// Small tiles and buckets, so that little state has several of each.
inline constexpr const char* kSmallTiles =
    "\"tile_elements\": 4096, \"bucket_elements\": 9000, \"host_memory_bytes\": 400000";

// The group of a runtime that has no other ranks.
inline constexpr millpond_group kAlone{0, 0, 1};

// Five parameters in two groups, one its own main, one empty, tails that are no multiples.
std::vector<Parameter> usual_parameters();

std::int32_t save(Training& training, const std::string& path, Status* status,
                  std::uint64_t flags = MILLPOND_IO_COMMIT, const std::string& save_id = "");
std::int32_t load(Training& training, const std::string& path, Status* status,
                  std::uint64_t flags = 0, const std::string& save_id = "");

// The oracle's state := this, and the models of parameters that are their own mains as well: those
// come back with the framework's own checkpoint, not with ours.
void take_over(Training& training, const std::vector<PlainParameter>& saved);

// Everything that a load may change: models, all segments, counters.
struct Everything {
  std::vector<std::vector<std::uint8_t>> models;
  std::vector<std::vector<float>> segments;
  std::vector<std::uint64_t> counters;
  bool operator==(const Everything& other) const;  // bit by bit
};
Everything everything(Training& training);

// The only save's directory below `path`; "" when there is none or more than one.
std::filesystem::path only_save(const std::string& path);
std::string file_bytes(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& bytes);

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_CHECKPOINT_SAVED_TRAINING_H_
