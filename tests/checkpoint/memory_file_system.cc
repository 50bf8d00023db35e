#include "tests/checkpoint/memory_file_system.h"

#include <algorithm>
#include <random>

#include "millpond/error.hpp"

namespace millpond::checkpoint::testing {

using Node = MemoryFileSystem::Node;

class MemoryFile final : public File {
 public:
  MemoryFile(MemoryFileSystem* fs, std::shared_ptr<Node> node, std::string path, bool writable)
      : fs_(fs), node_(std::move(node)), path_(std::move(path)), writable_(writable) {}

  std::uint64_t size() override {
    fs_->call("size " + path_);
    return node_->bytes.size();
  }
  void read(std::uint64_t offset, std::span<std::byte> bytes) override {
    fs_->call("read " + path_);
    if (offset > node_->bytes.size() || bytes.size() > node_->bytes.size() - offset) {
      throw Error(MILLPOND_E_CORRUPT, "read", "the file ends").path(path_).at(offset);
    }
    std::copy_n(node_->bytes.data() + offset, bytes.size(), reinterpret_cast<char*>(bytes.data()));
  }
  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (!writable_) throw Error(MILLPOND_E_IO, "write", "opened for reading").path(path_);
    const bool half = fs_->call("write " + path_, true);
    const std::size_t count = half ? bytes.size() / 2 : bytes.size();
    if (node_->bytes.size() < offset + count) node_->bytes.resize(offset + count);
    const auto* const from = reinterpret_cast<const char*>(bytes.data());
    std::copy_n(from, count, node_->bytes.data() + offset);
    node_->unsynced.push_back({offset, std::string(from, count)});
    if (half) throw Crash{};
  }
  void sync_data() override {
    fs_->call("sync_data " + path_);
    keep();
  }
  void sync() override {
    fs_->call("sync " + path_);
    keep();
  }

 private:
  void keep() {
    node_->durable_bytes = node_->bytes;
    node_->synced = true;
    node_->unsynced.clear();
  }
  MemoryFileSystem* fs_;
  std::shared_ptr<Node> node_;
  std::string path_;
  bool writable_;
};

MemoryFileSystem::MemoryFileSystem() : root_(std::make_shared<Node>()) { root_->directory = true; }

bool MemoryFileSystem::call(const std::string& what, bool is_write) {
  const std::uint64_t number = calls_++;
  if (hook_) hook_(number, what);
  if (number == crash_at_ && !is_write) throw Crash{};
  return number == crash_at_;
}

std::shared_ptr<Node> MemoryFileSystem::find(const std::string& path) const {
  std::shared_ptr<Node> node = root_;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const auto next = node->names.find(path.substr(begin, end - begin));
    if (next == node->names.end()) return nullptr;
    node = next->second;
    begin = end + 1;
  }
  return node;
}

std::shared_ptr<Node> MemoryFileSystem::parent_of(const std::string& path,
                                                  std::string* name) const {
  const std::size_t slash = path.rfind('/');
  *name = slash == std::string::npos ? path : path.substr(slash + 1);
  std::shared_ptr<Node> parent = find(slash == std::string::npos ? "" : path.substr(0, slash));
  if (parent == nullptr || !parent->directory) {
    throw Error(MILLPOND_E_MISSING, "resolve", "no such directory").path(path);
  }
  return parent;
}

std::vector<Entry> MemoryFileSystem::list(const std::string& directory) {
  call("list " + directory);
  std::vector<Entry> entries;
  if (const auto node = find(directory)) {
    for (const auto& [name, child] : node->names) {
      entries.push_back({name, child->directory ? Entry::Kind::kDirectory : Entry::Kind::kFile});
    }
  }
  return entries;
}

bool MemoryFileSystem::exists(const std::string& path) {
  call("exists " + path);
  return find(path) != nullptr;
}

// Unlike the real one it leaves new names undurable: callers must not rely on more than the
// interface says.
void MemoryFileSystem::make_directories(const std::string& path) {
  call("make_directories " + path);
  std::shared_ptr<Node> node = root_;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    std::shared_ptr<Node>& next = node->names[path.substr(begin, end - begin)];
    if (next == nullptr) {
      next = std::make_shared<Node>();
      next->directory = true;
    }
    node = next;
    begin = end + 1;
  }
}

std::unique_ptr<File> MemoryFileSystem::create(const std::string& path,
                                               std::uint64_t reserve_bytes) {
  call("create " + path);
  std::string name;
  const auto parent = parent_of(path, &name);
  auto node = std::make_shared<Node>();
  node->bytes.resize(reserve_bytes);
  parent->names[name] = node;
  return std::make_unique<MemoryFile>(this, node, path, true);
}

std::unique_ptr<File> MemoryFileSystem::take_in(const std::string& path, int descriptor) {
  call("take_in " + path);
  const auto offered = offered_.find(descriptor);
  if (offered == offered_.end()) return nullptr;
  std::string name;
  const auto parent = parent_of(path, &name);
  auto node = std::make_shared<Node>();
  node->bytes = offered->second;
  node->unsynced.push_back({0, offered->second});
  parent->names[name] = node;
  return std::make_unique<MemoryFile>(this, node, path, true);
}

std::unique_ptr<File> MemoryFileSystem::open(const std::string& path) {
  call("open " + path);
  const auto node = find(path);
  if (node == nullptr) throw Error(MILLPOND_E_MISSING, "open", "no such file").path(path);
  if (node->directory) throw Error(MILLPOND_E_CORRUPT, "open", "a directory").path(path);
  return std::make_unique<MemoryFile>(this, node, path, false);
}

void MemoryFileSystem::rename(const std::string& from, const std::string& to) {
  call("rename " + from + " " + to);
  std::string from_name, to_name;
  const auto from_parent = parent_of(from, &from_name);
  const auto to_parent = parent_of(to, &to_name);
  to_parent->names[to_name] = from_parent->names.at(from_name);
  from_parent->names.erase(from_name);
}

void MemoryFileSystem::sync_directory(const std::string& directory) {
  call("sync_directory " + directory);
  const auto node = find(directory);
  if (node == nullptr) throw Error(MILLPOND_E_MISSING, "sync", "no such directory").path(directory);
  node->durable_names = node->names;
}

// One name after another, as a real one does it: killed, it leaves the rest.
void MemoryFileSystem::remove_tree(const std::string& path) {
  const auto node = find(path);
  if (node != nullptr && node->directory) {
    const auto names = node->names;
    for (const auto& [name, child] : names) remove_tree(path + "/" + name);
  }
  call("remove " + path);
  if (node == nullptr) return;
  std::string name;
  parent_of(path, &name)->names.erase(name);
}

namespace {

using Names = std::map<std::string, std::shared_ptr<Node>>;
using Write = MemoryFileSystem::Write;

constexpr std::size_t kPage = 4096;

// The log of unsynced writes replayed: a half of their pages, in any order.
std::string some_writes(const Node& node, std::mt19937_64* random) {
  std::string left = node.synced ? node.durable_bytes : std::string();
  if ((*random)() & 1) left.resize(node.bytes.size());
  std::vector<Write> pages;
  for (const Write& write : node.unsynced) {
    for (std::size_t at = 0; at < write.bytes.size(); at += kPage) {
      pages.push_back({write.offset + at, write.bytes.substr(at, kPage)});
    }
  }
  std::shuffle(pages.begin(), pages.end(), *random);
  for (const Write& page : pages) {
    if ((*random)() & 1) continue;
    if (left.size() < page.offset + page.bytes.size()) {
      left.resize(page.offset + page.bytes.size());
    }
    std::copy(page.bytes.begin(), page.bytes.end(),
              left.begin() + static_cast<std::ptrdiff_t>(page.offset));
  }
  return left;
}

// Each name as it was at the last sync of the directory, or as it is now.
Names some_names(const Node& node, std::mt19937_64* random) {
  Names all = node.durable_names;
  all.insert(node.names.begin(), node.names.end());
  Names left;
  for (const auto& [name, either] : all) {
    const Names& from = (*random)() & 1 ? node.names : node.durable_names;
    if (const auto found = from.find(name); found != from.end()) left.insert(*found);
  }
  return left;
}

std::shared_ptr<Node> survive(const Node& node, Survival survival, std::mt19937_64* random) {
  const bool coin = (*random)() & 1;
  const bool contents = survival == Survival::kEverything || survival == Survival::kContentsOnly ||
                        (survival == Survival::kRandom && coin);
  const bool names = survival == Survival::kEverything || survival == Survival::kNamesOnly ||
                     (survival == Survival::kRandom && coin);
  auto left = std::make_shared<Node>();
  left->directory = node.directory;
  left->synced = true;
  if (survival == Survival::kSomeWrites) {
    left->bytes = some_writes(node, random);
  } else if (contents) {
    left->bytes = node.bytes;
  } else if (node.synced) {
    left->bytes = node.durable_bytes;
  } else {
    left->bytes.assign(node.bytes.size(), '\0');
  }
  left->durable_bytes = left->bytes;
  const Names kept = survival == Survival::kSomeWrites ? some_names(node, random)
                     : names                           ? node.names
                                                       : node.durable_names;
  for (const auto& [name, child] : kept) left->names[name] = survive(*child, survival, random);
  left->durable_names = left->names;
  return left;
}

void collect(const Node& node, const std::string& path, std::map<std::string, std::string>* all) {
  for (const auto& [name, child] : node.names) {
    const std::string below = path.empty() ? name : path + "/" + name;
    if (child->directory) {
      collect(*child, below, all);
    } else {
      (*all)[below] = child->bytes;
    }
  }
}

}  // namespace

MemoryFileSystem MemoryFileSystem::survivor(Survival survival, std::uint64_t seed) const {
  std::mt19937_64 random(seed);
  MemoryFileSystem left;
  left.root_ = survive(*root_, survival, &random);
  return left;
}

std::map<std::string, std::string> MemoryFileSystem::files() const {
  std::map<std::string, std::string> all;
  collect(*root_, "", &all);
  return all;
}

std::string& MemoryFileSystem::bytes(const std::string& path) { return find(path)->bytes; }

}  // namespace millpond::checkpoint::testing
