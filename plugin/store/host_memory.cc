#include "plugin/store/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "millpond/error.hpp"

namespace millpond::plugin {
namespace {

// The share of what is available that "auto" takes: the other half stays for the host's own use and
// the page cache of its data.
constexpr std::uint64_t kShare = 2;
// An eighth of what is available stays free whatever the host asks for.
constexpr std::uint64_t kLeft = 8;

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  return number(word);  // "max" is none
}

// The value after `key` in a file of "key value" lines.
std::optional<std::uint64_t> read_keyed(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line, word, value;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    if (words >> word >> value && word == key) return number(value);
  }
  return std::nullopt;
}

// The names of one version's files.
struct Interface {
  const char* limit;
  const char* usage;
  const char* droppable;
};
constexpr Interface kVersion2{"memory.max", "memory.current", "inactive_file"};
constexpr Interface kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                              "total_inactive_file"};

// Lowers `memory` to what the group at `mount` + `path`, or an ancestor, still allows. Within a
// container the path may be the host's and absent here: the mount's own files then count.
void apply_group(const std::string& mount, std::string path, const Interface& names,
                 AvailableMemory& memory) {
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const std::string directory = mount + path;
    const auto limit = read_number(directory + "/" + names.limit);
    const auto usage = read_number(directory + "/" + names.usage);
    if (limit && usage) {
      const std::uint64_t droppable =
          read_keyed(directory + "/memory.stat", names.droppable).value_or(0);
      const std::uint64_t used = *usage > droppable ? *usage - droppable : 0;
      const std::uint64_t left = *limit > used ? *limit - used : 0;
      if (left < memory.bytes) memory = {left, directory + "/" + names.limit};
    }
    if (path.empty()) return;
    path.erase(path.rfind('/'));
  }
}

bool has_controller(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (list.substr(0, comma) == name) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
  return false;
}

std::string mebibytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

AvailableMemory available_memory(const std::string& root) {
  AvailableMemory memory{UINT64_MAX, ""};
  if (const auto kibibytes = read_keyed(root + "/proc/meminfo", "MemAvailable:")) {
    memory = {*kibibytes * 1024, "MemAvailable"};
  }
  const std::string mount = root + "/sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string line;  // hierarchy:controllers:path
  while (std::getline(groups, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (line.compare(0, first, "0") == 0 && controllers.empty()) {
      apply_group(mount, path, kVersion2, memory);
      apply_group(mount + "/unified", path, kVersion2, memory);
    } else if (has_controller(controllers, "memory")) {
      apply_group(mount + "/memory", path, kVersion1, memory);
    }
  }
  return memory;
}

MemoryChoice choose_host_memory(const Options& options, std::uint64_t page_cache,
                                const std::string& root) {
  MemoryChoice choice;
  const AvailableMemory memory = available_memory(root);
  if (const std::uint64_t asked = options.host_memory_bytes; asked != 0) {
    // More than there is would not be refused by the kernel: it would kill the process.
    const std::uint64_t left =
        memory.bytes / kLeft + std::min(page_cache, memory.bytes / kShare - memory.bytes / kLeft);
    choice.cap = std::min(asked, memory.bytes - left);
    choice.sentence = "host_memory_bytes: at most " + mebibytes(choice.cap);
    choice.sentence += asked == choice.cap
                           ? ", as asked"
                           : " of the " + mebibytes(asked) + " asked for, of " +
                                 mebibytes(memory.bytes) + " available (" + memory.source + ")";
    return choice;
  }
  if (memory.source.empty()) {
    throw Error(MILLPOND_E_MEMORY, "choose host memory",
                "neither /proc/meminfo nor a control group says how much memory is available")
        .field("options.host_memory_bytes")
        .remedy("Give host_memory_bytes as a number");
  }
  choice.cap = memory.bytes / kShare / options.local_size;
  choice.sentence = "host_memory_bytes auto: at most " + mebibytes(choice.cap) + ", half of " +
                    mebibytes(memory.bytes) + " available (" + memory.source + ") among " +
                    std::to_string(options.local_size) + " local rank(s)";
  return choice;
}

}  // namespace millpond::plugin
