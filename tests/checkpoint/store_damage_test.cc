// Damage of every kind to a save of two stores, loaded through the plugin into a store that is
// training: each is refused with the name of a file that was damaged and the place in it, and the
// store is afterwards what it was, byte for byte.
//
// Every byte of manifests, sums and COMMIT.json, and 12,000 cases drawn at random; outside the
// campaign 500 of them all. A hang ends with the test's time limit, a crash with its process.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "tests/checkpoint/in_memory.h"
#include "tests/checkpoint/saved_training.h"
#include "tests/store/campaign.h"

namespace millpond::tests {
namespace {

namespace fs = std::filesystem;
using Random = std::mt19937_64;
using Files = std::map<std::string, std::string>;  // contents by path below the save's directory

constexpr std::uint64_t kRandomCases = 12'000, kFewCases = 500;
constexpr const char* kCommit = "COMMIT.json";
constexpr std::array<const char*, 2> kStores = {"rank00000/opt0_0", "rank00001/opt0_0"};

Files files_below(const fs::path& directory) {
  Files files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    files[entry.path().lexically_relative(directory).string()] = file_bytes(entry.path());
  }
  return files;
}

// What was done to which files, for the message; one of `files` is named by the refusal.
struct Case {
  std::string what;
  std::vector<std::string> files;
  bool has_offset = true;  // a byte of it can be named
};

class Damage : public ::testing::Test {
 protected:
  Damage() : job_(scratch_.path(), kSmallTiles) {
    for (std::size_t k = 0; k < 2; ++k) {
      live_.push_back(std::make_unique<Training>(job_, kStores[k], usual_parameters(), k + 1));
      EXPECT_EQ(live_[k]->bind(&status_), MILLPOND_OK) << status_.text();
    }
    train_and_save(1, older_.path());
    train_and_save(2, saved_.path());
    save_ = only_save(saved_.path());
    good_ = files_below(save_);
    old_ = files_below(only_save(older_.path()));
    fs::copy(save_, aside_.path() + "/save", fs::copy_options::recursive);
    for (const auto& [path, bytes] : good_) {
      if (!bytes.empty()) names_.push_back(path);
    }
    for (std::size_t k = 0; k < 2; ++k) {
      live_[k]->train(3);
      before_.push_back(everything(*live_[k]));
    }
  }

  void train_and_save(std::uint64_t step, const std::string& path) {
    millpond_save_id id{};
    constexpr millpond_group kAlone{0, 0, 1};
    for (auto& training : live_) training->train(step);
    ASSERT_EQ(checkpoints().save_begin(job_.runtime, kAlone, str(path), &id, &status_),
              MILLPOND_OK);
    for (auto& training : live_) {
      ASSERT_EQ(save(*training, path, &status_, 0, id.text), MILLPOND_OK) << status_.text();
    }
    ASSERT_EQ(checkpoints().save_commit(job_.runtime, kAlone, str(id.text), &status_), MILLPOND_OK)
        << status_.text();
  }

  static std::size_t store_of(const std::string& path) {
    return path.rfind(kStores[1], 0) == 0 ? 1 : 0;  // COMMIT.json: any will notice
  }
  const std::string& any(Random& random) const { return names_[random() % names_.size()]; }
  const std::string& any_with(Random& random, const std::string& part) const {
    for (;;) {
      const std::string& name = any(random);
      if (name.find(part) != std::string::npos) return name;
    }
  }

  // Changes are noted, and undone after the case.
  void put(const std::string& path, const std::string& bytes) {
    take_away(path);
    write_file(save_ / path, bytes);
  }
  void take_away(const std::string& path) {
    touched_.push_back(path);
    fs::remove_all(save_ / path);
  }
  void undo() {
    // The last first: a directory that became a link is one again before its files are.
    for (auto touched = touched_.rbegin(); touched != touched_.rend(); ++touched) {
      const std::string& path = *touched;
      fs::remove_all(save_ / path);
      for (auto at = good_.lower_bound(path); at != good_.end() && at->first.rfind(path, 0) == 0;
           ++at) {
        fs::create_directories((save_ / at->first).parent_path());
        write_file(save_ / at->first, at->second);
      }
    }
    touched_.clear();
  }
  Case change_byte(const std::string& path, std::size_t at, unsigned char by) {
    std::string bytes = good_.at(path);
    bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ by);
    put(path, bytes);
    return {"byte " + std::to_string(at) + " changed by " + std::to_string(by), {path}};
  }
  // Other bytes for each of the paths.
  Case replace(const std::string& what, const std::vector<std::string>& paths,
               const std::function<std::string(const std::string&)>& other) {
    const auto same = [&](const std::string& path) { return other(path) == good_.at(path); };
    // A bucket that no step has touched in between is the same in the older save.
    if (std::all_of(paths.begin(), paths.end(), same)) return change_byte(paths.front(), 0, 8);
    for (const std::string& path : paths) put(path, other(path));
    return {what, paths};
  }

  Case draw(Random& random);
  Case draw_contents(Random& random);
  Case draw_exchange(Random& random);
  Case draw_no_file(Random& random);
  void expect_refused(const Case& drawn);

  InMemory memory_;
  TemporaryDirectory scratch_, saved_, older_, aside_;
  Job job_;
  std::vector<std::unique_ptr<Training>> live_;
  std::vector<Everything> before_;
  fs::path save_;
  Files good_, old_;
  std::vector<std::string> names_;  // of files that are not empty
  std::vector<std::string> touched_;
  Status status_;
};

// A file with other contents.
Case Damage::draw_contents(Random& random) {
  const std::string path = any(random);
  const std::string& good = good_.at(path);
  std::string bytes = good;
  const std::size_t at = random() % good.size();
  switch (random() % 7) {
    case 0:
      return change_byte(path, at, static_cast<unsigned char>(1u << random() % 8));
    case 1:
      return change_byte(path, at, static_cast<unsigned char>(1 + random() % 255));
    case 2:
      put(path, good.substr(0, at));
      return {"cut to " + std::to_string(at) + " bytes", {path}};
    case 3: {
      const std::size_t more = 1 + random() % 9'000;
      put(path, good + (random() % 2 == 0 ? std::string(more, '\0') : good + good).substr(0, more));
      return {"longer by up to " + std::to_string(more), {path}};
    }
    case 4: {  // as after a write that was lost
      const std::size_t from = at / 512 * 512,
                        size = std::min(good.size() - from, std::size_t{512});
      bytes.replace(from, size, std::string(size, '\0'));
      if (bytes == good) return change_byte(path, at, 1);
      put(path, bytes);
      return {"zeros from " + std::to_string(from), {path}};
    }
    case 5: {  // another save's bytes in one sector
      const std::string& old = old_.at(path);
      const std::size_t from = at / 512 * 512;
      if (old.size() != good.size() || old.substr(from, 512) == good.substr(from, 512)) {
        return change_byte(path, at, 0x80);
      }
      bytes.replace(from, 512, old.substr(from, 512));
      put(path, bytes);
      return {"a sector of the older save at " + std::to_string(from), {path}};
    }
    default: {  // a number of a text: a digit more, or another one
      const std::string json = any_with(random, ".json");
      bytes = good_.at(json);
      std::size_t digit = random() % bytes.size();
      while (bytes[digit] < '0' || bytes[digit] > '9') digit = (digit + 1) % bytes.size();
      const char other = static_cast<char>('0' + (bytes[digit] - '0' + 1 + random() % 9) % 10);
      if (random() % 2 == 0) {
        bytes[digit] = other;
      } else {
        bytes.insert(digit, 1, other);
      }
      put(json, bytes);
      return {"another number at " + std::to_string(digit), {json}};
    }
  }
}

// Right bytes in the wrong place.
Case Damage::draw_exchange(Random& random) {
  const std::string bin = any_with(random, ".bin");
  const std::string sums = bin.substr(0, bin.size() - 3) + "sums";
  const std::string own = kStores[store_of(bin)], other = kStores[1 - store_of(bin)];
  const auto elsewhere = [&](const std::string& path) {
    return good_.at(path.find(own) == 0 ? other + path.substr(own.size()) : path);
  };
  const auto in_old = [&](const std::string& path) { return old_.at(path); };
  const std::vector<std::vector<std::string>> some = {{bin}, {sums}, {bin, sums}};
  const std::vector<std::string>& paths = some[random() % some.size()];
  switch (random() % 6) {
    case 0: {  // two blocks of a file
      std::string bytes = good_.at(bin);
      const std::size_t pages = bytes.size() / 4096, a = random() % pages, b = random() % pages;
      for (std::size_t i = 0; i < 4096; ++i) std::swap(bytes[a * 4096 + i], bytes[b * 4096 + i]);
      if (bytes == good_.at(bin)) return change_byte(bin, a * 4096, 2);
      put(bin, bytes);
      return {"pages " + std::to_string(a) + " and " + std::to_string(b) + " exchanged", {bin}};
    }
    case 1: {  // two buckets, with their sums or without
      const std::string second = any_with(random, own + "/bucket");
      const std::string bin2 = second.substr(0, second.rfind('.')) + ".bin";
      if (bin2 == bin) return change_byte(bin, 0, 4);
      put(bin, good_.at(bin2));
      put(bin2, good_.at(bin));
      if (random() % 2 == 0) return {"two buckets exchanged", {bin, bin2}};
      const std::string sums2 = bin2.substr(0, bin2.size() - 3) + "sums";
      put(sums, good_.at(sums2));
      put(sums2, good_.at(sums));
      return {"two buckets and their sums exchanged", {bin, bin2, sums, sums2}};
    }
    case 2:
      return replace("of the other rank", paths, elsewhere);
    case 3:
      return replace("of the older save", paths, in_old);
    case 4: {
      const std::string json = random() % 2 == 0 ? kCommit : own + "/manifest.json";
      return replace("of the older save", {json}, in_old);
    }
    default: {  // a whole store: the other rank's, or the older save's
      std::vector<std::string> all;
      for (const auto& [path, bytes] : good_) {
        if (path.find(own) == 0) all.push_back(path);
      }
      return random() % 2 == 0 ? replace("all of the other rank", all, elsewhere)
                               : replace("all of the older save", all, in_old);
    }
  }
}

// No file, or something else in its place that has the right bytes behind it.
Case Damage::draw_no_file(Random& random) {
  const std::string path = any(random);
  const fs::path at = save_ / path;
  take_away(path);
  switch (random() % 6) {
    case 0:
      return {"missing", {path}, false};
    case 1:
      fs::create_symlink(fs::path(aside_.path()) / "save" / path, at);
      return {"a symbolic link", {path}, false};
    case 2:
      mkfifo(at.c_str(), 0600);
      return {"a FIFO", {path}, false};
    case 3:
      fs::create_directory(at);
      return {"a directory", {path}, false};
    case 4:
      fs::create_symlink(path, at);
      return {"a link to itself", {path}, false};
    default: {
      const std::string store = kStores[random() % 2];
      take_away(store);
      if (random() % 2 == 0) {
        fs::create_directory_symlink(fs::path(aside_.path()) / "save" / store, save_ / store);
      }
      return {"a store's directory missing or a link", {store, path}, false};
    }
  }
}

Case Damage::draw(Random& random) {
  switch (random() % 5) {
    case 0:
      return draw_exchange(random);
    case 1:
      return draw_no_file(random);
    default:
      return draw_contents(random);
  }
}

void Damage::expect_refused(const Case& drawn) {
  const std::size_t k = store_of(drawn.files.front());
  const std::int32_t code = load(*live_[k], saved_.path(), &status_);
  const std::string text = status_.text();
  EXPECT_TRUE(code == MILLPOND_E_CORRUPT || code == MILLPOND_E_MISSING ||
              code == MILLPOND_E_VERSION)
      << text;
  bool named = false;
  for (const std::string& path : drawn.files) named |= text.find(path) != std::string::npos;
  EXPECT_TRUE(named) << text;
  if (drawn.has_offset) {
    EXPECT_NE(text.find("at offset"), std::string::npos) << text;
  }
  EXPECT_EQ(everything(*live_[k]), before_[k]) << "the live state changed";
}

TEST_F(Damage, R03_R04_of_every_kind_is_refused_and_changes_nothing) {
  std::vector<std::pair<std::string, std::size_t>> bytes;
  for (const auto& [path, contents] : good_) {
    if (path.find(".bin") != std::string::npos) continue;
    for (std::size_t at = 0; at < contents.size(); ++at) bytes.emplace_back(path, at);
  }
  const std::uint64_t all = bytes.size() + kRandomCases;
  std::uint64_t cases = 0;
  for (const std::uint64_t number : some_of(all, kFewCases)) {
    Random random(number);
    const Case drawn = number < bytes.size()
                           ? change_byte(bytes[number].first, bytes[number].second,
                                         static_cast<unsigned char>(1 + random() % 255))
                           : draw(random);
    SCOPED_TRACE("case " + std::to_string(number) + ": " + drawn.files.front() + ": " + drawn.what);
    expect_refused(drawn);
    undo();
    ++cases;
    if (HasFailure()) return;
  }
  std::printf(
      "%llu cases of %llu, %zu of which are each byte of manifests, sums and COMMIT.json: "
      "wanted all refused, got all refused\n",
      static_cast<unsigned long long>(cases), static_cast<unsigned long long>(all), bytes.size());
  // What was damaged is whole again, and the store trains on.
  for (std::size_t k = 0; k < 2; ++k) {
    live_[k]->train(4, 6);
    EXPECT_EQ(live_[k]->models_differ() + live_[k]->state_differs(), "");
    EXPECT_EQ(load(*live_[k], saved_.path(), &status_), MILLPOND_OK) << status_.text();
  }
}

}  // namespace
}  // namespace millpond::tests
