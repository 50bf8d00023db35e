#include "host_adapters/sample/saves.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "host_adapters/sample/durable_file.h"
#include "millpond/error.hpp"

namespace millpond::sample {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "millpond-sample-save/1";
constexpr std::string_view kPrefix = "step_";

std::string folder_name(std::uint64_t step) {
  char name[32];
  std::snprintf(name, sizeof(name), "step_%08llu", static_cast<unsigned long long>(step));
  return name;
}

// The step of a folder that write_save named, or nothing: whatever else lies there is not ours.
std::optional<std::uint64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix) || name.size() < kPrefix.size() + 8 ||
      name.find_first_not_of("0123456789", kPrefix.size()) != std::string::npos) {
    return std::nullopt;
  }
  return std::stoull(name.substr(kPrefix.size()));
}

std::vector<std::uint64_t> steps_in(const fs::path& directory) {
  std::vector<std::uint64_t> steps;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::optional<std::uint64_t> step = step_of(entry.path());
    if (step && fs::exists(entry.path() / "sample.json")) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

nlohmann::json as_json(std::uint64_t step, const RunIdentity& identity) {
  return {{"format", kFormat},
          {"step", step},
          {"kind", identity.kind},
          {"model", identity.model},
          {"moments", identity.moments},
          {"text", identity.text},
          {"seed", identity.seed},
          {"batch", identity.batch},
          {"micro_batches", identity.micro_batches}};
}

void check_identity(const fs::path& file, std::uint64_t step, const RunIdentity& identity) {
  const nlohmann::json found = nlohmann::json::parse(read_whole(file), nullptr, false);
  if (!found.is_object()) {
    throw Error(MILLPOND_E_CORRUPT, "resume", "this is no JSON object").path(file.string());
  }
  const nlohmann::json expected = as_json(step, identity);
  for (const auto& [key, value] : expected.items()) {
    if (found.contains(key) && found[key] == value) continue;
    throw Error(MILLPOND_E_MISMATCH, "resume",
                "the save is of another run: this one has " + value.dump() + ", the save " +
                    (found.contains(key) ? found[key].dump() : "nothing"))
        .path(file.string())
        .field(key)
        .remedy("Give the arguments of the saved run");
  }
}

}  // namespace

void write_save(const fs::path& directory, std::uint64_t step, const RunIdentity& identity,
                Optimizer& optimizer, Collective& ranks) {
  const fs::path folder = directory / folder_name(step);
  if (ranks.rank() == 0) {
    fs::create_directories(folder);
    sync_directory(directory);
    write_durably(folder / "sample.json", as_json(step, identity).dump(2) + "\n");
  }
  // Nobody goes on before the folder is there.
  std::vector<std::byte> words(ranks.size());
  ranks.all_gather(&words[ranks.rank()], words.data(), 1, {MILLPOND_DEVICE_CPU, 0, 0});
  optimizer.save(folder / "optimizer");
  if (ranks.rank() != 0) return;
  sync_directory(folder);
  for (const std::uint64_t other : steps_in(directory)) {
    if (other < step) fs::remove_all(directory / folder_name(other));
  }
}

std::uint64_t load_save(const fs::path& directory, const RunIdentity& identity,
                        Optimizer& optimizer, const std::function<void(std::string)>& note) {
  for (const std::uint64_t step : steps_in(directory)) {
    const fs::path folder = directory / folder_name(step);
    check_identity(folder / "sample.json", step, identity);
    try {
      optimizer.load(folder / "optimizer");
      return step;
    } catch (const Error& error) {
      if (error.code() != MILLPOND_E_MISSING) throw;
      note("passed over " + folder.string() + ", which was not finished: " + error.what());
    }
  }
  throw Error(MILLPOND_E_MISSING, "resume", "there is no whole save here")
      .path(directory.string())
      .remedy("Give the directory of an earlier run's --save");
}

}  // namespace millpond::sample
