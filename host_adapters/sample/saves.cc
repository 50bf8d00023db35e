#include "host_adapters/sample/saves.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "host_adapters/sample/durable_file.h"
#include "millpond/error.hpp"

namespace millpond::sample {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "millpond-sample-save/2";
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

// Of all folders of saves and of killed runs, the newest first.
std::vector<std::uint64_t> steps_in(const fs::path& directory) {
  std::vector<std::uint64_t> steps;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (const std::optional<std::uint64_t> step = step_of(entry.path())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

bool committed(const fs::path& folder) {
  const fs::path optimizer = folder / "optimizer";
  if (fs::is_regular_file(optimizer)) return true;
  if (!fs::is_directory(optimizer)) return false;
  return std::ranges::any_of(fs::directory_iterator(optimizer), [](const auto& entry) {
    return fs::exists(entry.path() / "COMMIT.json");
  });
}

nlohmann::json hyperparameters_json(const Hyperparameters& hyper) {
  return {{"lr", hyper.lr},         {"final_lr", hyper.final_lr},
          {"warmup", hyper.warmup}, {"beta1", hyper.beta1},
          {"beta2", hyper.beta2},   {"eps", hyper.eps},
          {"clip", hyper.clip},     {"weight_decay", hyper.weight_decay}};
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
          {"micro_batches", identity.micro_batches},
          {"hyperparameters", hyperparameters_json(identity.hyper)},
          {"steps", identity.steps}};
}

void compare(const fs::path& file, const nlohmann::json& expected, const nlohmann::json& found,
             const char* remedy) {
  for (const auto& [key, value] : expected.items()) {
    if (found.contains(key) && found[key] == value) continue;
    throw Error(MILLPOND_E_MISMATCH, "resume",
                "the save is of another run: this one has " + value.dump() + ", the save " +
                    (found.contains(key) ? found[key].dump() : "nothing"))
        .path(file.string())
        .field(key)
        .remedy(remedy);
  }
}

void check_identity(const fs::path& file, std::uint64_t step, const RunIdentity& identity,
                    bool other_hyperparameters, const std::function<void(std::string)>& note) {
  const nlohmann::json found = nlohmann::json::parse(read_whole(file), nullptr, false);
  if (!found.is_object() || !found.contains("hyperparameters") ||
      !found["hyperparameters"].is_object()) {
    throw Error(MILLPOND_E_CORRUPT, "resume", "this is no description of a save")
        .path(file.string())
        .remedy("Resume from a save that this version of the program has made");
  }
  nlohmann::json expected = as_json(step, identity);
  const nlohmann::json hyper = std::exchange(expected["hyperparameters"], found["hyperparameters"]);
  expected["steps"] = found.value("steps", nlohmann::json());
  compare(file, expected, found, "Give the arguments of the saved run");
  if (!other_hyperparameters) {
    compare(file, hyper, found["hyperparameters"],
            "Give the saved run's, or --new-hyperparameters if the change is meant");
  }
  if (expected["steps"] != identity.steps) {
    note("the saved run had --steps " + expected["steps"].dump() + ", this one has " +
         std::to_string(identity.steps) + ": learning rates are those of the new number from here");
  }
}

}  // namespace

void prepare_saves(const fs::path& directory, const fs::path& resume) {
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) {
    throw Error(MILLPOND_E_IO, "create directory", failure.message())
        .path(directory.string())
        .field("--save")
        .os(failure.value())
        .remedy("Name a directory that can be made and written to");
  }
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    throw Error(MILLPOND_E_IO, "write to directory", std::generic_category().message(errno))
        .path(directory.string())
        .field("--save")
        .os(errno)
        .remedy("Name a directory that can be written to");
  }
  if (!resume.empty() && fs::equivalent(directory, resume)) return;
  for (const std::uint64_t step : steps_in(directory)) {
    if (!committed(directory / folder_name(step))) continue;
    throw Error(MILLPOND_E_STATE, "save", "the directory has a save of another run already")
        .path((directory / folder_name(step)).string())
        .field("--save")
        .remedy("Name an empty directory, add --resume " + directory.string() +
                " to go on with that run, or remove its saves");
  }
}

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
                        bool other_hyperparameters, Optimizer& optimizer,
                        const std::function<void(std::string)>& note) {
  for (const std::uint64_t step : steps_in(directory)) {
    const fs::path folder = directory / folder_name(step);
    if (!committed(folder)) {
      note("passed over " + folder.string() + ": it was not finished, it has no commit");
      continue;
    }
    check_identity(folder / "sample.json", step, identity, other_hyperparameters, note);
    note("loading " + folder.string());
    optimizer.load(folder / "optimizer");
    return step;
  }
  const bool inside = fs::exists(directory / "sample.json");
  throw Error(MILLPOND_E_MISSING, "resume", "there is no whole save here")
      .path(directory.string())
      .field("--resume")
      .remedy(inside ? "This looks like one save of a run: name the directory above it, " +
                           fs::absolute(directory / "..").lexically_normal().string()
                     : "Give the directory of an earlier run's --save");
}

}  // namespace millpond::sample
