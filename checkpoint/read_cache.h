// What readers of a save keep of what they have read: open files and verified blocks, those used
// last. Readers of many stores share one, so that neither grows with their number.
#ifndef MILLPOND_CHECKPOINT_READ_CACHE_H_
#define MILLPOND_CHECKPOINT_READ_CACHE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "checkpoint/file_system.h"

namespace millpond::checkpoint {

// At most `most` values by key. One thread at a time.
template <typename Key, typename Value>
class LastUsed {
 public:
  explicit LastUsed(std::size_t most) : most_(most) { entries_.reserve(most); }

  // The key's value. Where there is none, make(value) makes it of the one used longest ago; when it
  // throws there is still none. The reference lives until the next call.
  template <typename Make>
  Value& get(const Key& key, Make&& make) {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.key == key; });
    const bool there = found != entries_.end();
    Entry& entry = there ? *found : longest_ago();
    if (!there) {
      entry.key.reset();
      make(entry.value);
      entry.key = key;
    }
    entry.used = ++clock_;
    return entry.value;
  }

 private:
  struct Entry {
    std::optional<Key> key;
    std::uint64_t used = 0;
    Value value;
  };
  Entry& longest_ago() {
    if (entries_.size() < most_) return entries_.emplace_back();
    return *std::min_element(entries_.begin(), entries_.end(),
                             [](const Entry& a, const Entry& b) { return a.used < b.used; });
  }

  std::size_t most_;
  std::vector<Entry> entries_;
  std::uint64_t clock_ = 0;
};

struct ReadCache {
  std::mutex mutex;  // of `files`
  // By the store's directory and the bucket.
  LastUsed<std::tuple<std::string, std::uint32_t>, std::shared_ptr<File>> files{32};
  // By the store's directory, bucket, segment and block. Segments of a tile are read in turn, from
  // several stores, and reordered shards go back and forth a little. Of one thread.
  LastUsed<std::tuple<std::string, std::uint32_t, std::uint32_t, std::uint64_t>,
           std::vector<std::byte>>
      blocks{24};
};

}  // namespace millpond::checkpoint

#endif  // MILLPOND_CHECKPOINT_READ_CACHE_H_
