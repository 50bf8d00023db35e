// A file system in memory that knows what would survive a crash. Every call is counted; a chosen
// one throws Crash, or an Error, instead of being done (a write is done by half). survivor() says
// what a machine would find afterwards.
#ifndef MILLPOND_TESTS_CHECKPOINT_MEMORY_FILE_SYSTEM_H_
#define MILLPOND_TESTS_CHECKPOINT_MEMORY_FILE_SYSTEM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"

namespace millpond::checkpoint::testing {

struct Crash {};  // not an exception that anything but the test catches

enum class Survival : std::uint8_t {
  kEverything,    // the process was killed: the kernel still writes all of it
  kSyncedOnly,    // power loss, nothing that was not synced
  kNamesOnly,     // power loss: directories are as they were, unsynced contents are zeros
  kContentsOnly,  // power loss: contents are as they were, unsynced names are gone
  kRandom,        // each file and each directory one or the other
  // power loss, from the log of writes: of those that no sync followed each page is there or not,
  // in any order; of names each new, changed or removed one by itself; lengths as they come
  kSomeWrites,
};

class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();

  std::vector<Entry> list(const std::string& directory) override;
  bool exists(const std::string& path) override;
  void make_directories(const std::string& path) override;
  std::unique_ptr<File> create(const std::string& path, std::uint64_t reserve_bytes) override;
  std::unique_ptr<File> open(const std::string& path) override;
  std::unique_ptr<File> take_in(const std::string& path, int descriptor) override;
  void rename(const std::string& from, const std::string& to) override;
  void sync_directory(const std::string& directory) override;
  void remove_tree(const std::string& path) override;

  // A file outside, of which nothing is durable yet, that take_in can link; as linkat does.
  void offer(int descriptor, std::string bytes) { offered_[descriptor] = std::move(bytes); }

  // Before the call with this number (from 0) is done.
  void crash_at(std::uint64_t call) { crash_at_ = call; }
  void before_each(std::function<void(std::uint64_t call, const std::string& what)> hook) {
    hook_ = std::move(hook);
  }
  std::uint64_t calls() const { return calls_; }

  MemoryFileSystem survivor(Survival survival, std::uint64_t seed) const;
  // All files by path.
  std::map<std::string, std::string> files() const;
  std::string& bytes(const std::string& path);  // for damage

  struct Write {
    std::uint64_t offset = 0;
    std::string bytes;
  };
  struct Node {
    bool directory = false;
    std::string bytes, durable_bytes;
    bool synced = false;          // durable_bytes mean something
    std::vector<Write> unsynced;  // since the last sync, in the order of the calls
    std::map<std::string, std::shared_ptr<Node>> names, durable_names;
  };

 private:
  friend class MemoryFile;
  // True: do half of it, then crash (writes only).
  bool call(const std::string& what, bool is_write = false);
  std::shared_ptr<Node> find(const std::string& path) const;
  std::shared_ptr<Node> parent_of(const std::string& path, std::string* name) const;

  std::shared_ptr<Node> root_;
  std::map<int, std::string> offered_;
  std::uint64_t calls_ = 0;
  std::uint64_t crash_at_ = UINT64_MAX;
  std::function<void(std::uint64_t, const std::string&)> hook_;
};

}  // namespace millpond::checkpoint::testing

#endif  // MILLPOND_TESTS_CHECKPOINT_MEMORY_FILE_SYSTEM_H_
