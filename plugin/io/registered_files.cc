#include "plugin/io/registered_files.h"

#include <sys/resource.h>

#include <algorithm>

namespace millpond::plugin {
namespace {

constexpr rlim_t kMostFiles = 1024;
constexpr std::size_t kMostDescriptors = 8192;  // higher ones are used by their number

}  // namespace

RegisteredFiles::RegisteredFiles(io_uring* ring) : ring_(ring) {
  // A table above RLIMIT_NOFILE is refused with EMFILE.
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto entries = static_cast<unsigned>(std::min(limit.rlim_cur, kMostFiles));
  if (entries == 0 || io_uring_register_files_sparse(ring, entries) != 0) return;
  entry_of_.assign(kMostDescriptors, kUnknown);
  unused_.reserve(entries);
  for (unsigned i = entries; i > 0; --i) unused_.push_back(static_cast<std::int16_t>(i - 1));
}

int RegisteredFiles::index_of(int fd) {
  if (fd < 0 || static_cast<std::size_t>(fd) >= entry_of_.size()) return -1;
  std::int16_t& entry = entry_of_[static_cast<std::size_t>(fd)];
  if (entry == kUnknown && !unused_.empty()) {
    const std::int16_t next = unused_.back();
    if (io_uring_register_files_update(ring_, static_cast<unsigned>(next), &fd, 1) == 1) {
      unused_.pop_back();
      entry = next;
    } else {
      entry = kRefused;
    }
  }
  return entry >= 0 ? entry : -1;
}

void RegisteredFiles::forget(int fd) {
  if (fd < 0 || static_cast<std::size_t>(fd) >= entry_of_.size()) return;
  std::int16_t& entry = entry_of_[static_cast<std::size_t>(fd)];
  const std::int16_t was = entry;
  entry = kUnknown;
  if (was < 0) return;
  const int none = -1;
  // An entry that cannot be emptied is not used again.
  if (io_uring_register_files_update(ring_, static_cast<unsigned>(was), &none, 1) == 1) {
    unused_.push_back(was);
  }
}

}  // namespace millpond::plugin
