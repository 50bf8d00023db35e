#include "tests/checkpoint/saved_training.h"

#include <cstring>
#include <fstream>
#include <sstream>

namespace millpond::tests {
std::vector<Parameter> usual_parameters() {
  return {{"embedding", 13'001, 0, 0},
          {"layer.bias", 7, 1, 0},
          {"layer.weight", 4'096, 0, 0},
          {"empty", 0, 0, 0},
          {"norm", 700, 1, 1, MILLPOND_DTYPE_FP32},
          {"head", 5'000, 2, 1, MILLPOND_DTYPE_FP16}};
}

std::int32_t save(Training& training, const std::string& path, Status* status, std::uint64_t flags,
                  const std::string& save_id) {
  millpond_io_args args = io_args(path, flags);
  args.save_id = str(save_id);
  return table().save_to(training.store, &args, status);
}

std::int32_t load(Training& training, const std::string& path, Status* status, std::uint64_t flags,
                  const std::string& save_id) {
  millpond_io_args args = io_args(path, flags);
  args.save_id = str(save_id);
  return table().load_from(training.store, &args, status);
}

void take_over(Training& training, const std::vector<PlainParameter>& saved) {
  training.plain = saved;
  for (std::size_t i = 0; i < training.parameters.size(); ++i) {
    if (training.parameters[i].model != MILLPOND_DTYPE_FP32 || saved[i].main.empty()) continue;
    std::memcpy(training.models[i].data(), saved[i].main.data(), training.models[i].size());
  }
}

bool Everything::operator==(const Everything& other) const {
  if (models != other.models || counters != other.counters) return false;
  if (segments.size() != other.segments.size()) return false;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].size() != other.segments[i].size()) return false;
    if (!segments[i].empty() && std::memcmp(segments[i].data(), other.segments[i].data(),
                                            segments[i].size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

Everything everything(Training& training) {
  Everything all;
  all.models = training.models;
  for (std::size_t i = 0; i < training.parameters.size(); ++i) {
    for (std::uint32_t s = training.parameters[i].model == MILLPOND_DTYPE_FP32 ? 1 : 0; s < 3;
         ++s) {
      all.segments.push_back(training.read(i, s));
    }
    all.counters.push_back(training.counter(i));
  }
  return all;
}

std::filesystem::path only_save(const std::string& path) {
  std::filesystem::path found;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (!found.empty()) return {};
    found = entry.path();
  }
  return found;
}

std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

void write_file(const std::filesystem::path& path, const std::string& bytes) {
  // A new file: the old one may be a live store's as well, by a link.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace millpond::tests
