#include "checkpoint/commit.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "checkpoint/digest.h"
#include "checkpoint/strict_json.h"
#include "millpond/error.hpp"

namespace millpond::checkpoint {
namespace {

constexpr std::string_view kCommitKeys[] = {"format",         "version",  "save_id", "sequence",
                                            "world_size",     "stores",   "rank",    "uid",
                                            "manifest_bytes", "manifest", "digest"};
constexpr std::string_view kDigestKey = ",\n\"digest\": \"";
constexpr std::size_t kEndBytes = kDigestKey.size() + 32 + 3;  // the key, 32 digits, "}\n

std::string end_of(std::string_view body) {
  return std::string(kDigestKey) + digest(body) + "\"}\n";
}

void check_stores(const Commit& commit, JsonObject& whole) {
  for (std::size_t i = 0; i < commit.stores.size(); ++i) {
    const StoreRecord& store = commit.stores[i];
    if (store.rank >= commit.world_size) throw whole.corrupt("a store of a rank outside the world");
    if (i > 0 && std::tie(commit.stores[i - 1].rank, commit.stores[i - 1].uid) >=
                     std::tie(store.rank, store.uid)) {
      throw whole.corrupt("the stores are not in order, or one is there twice");
    }
    try {
      check_uid(store.uid);
    } catch (const Error& error) {
      throw whole.corrupt(error.reason());
    }
  }
}

}  // namespace

const StoreRecord* Commit::find(std::string_view uid) const {
  const auto found = std::find_if(stores.begin(), stores.end(),
                                  [&](const StoreRecord& store) { return store.uid == uid; });
  return found == stores.end() ? nullptr : &*found;
}

std::string to_json(const Commit& commit) {
  std::string text = fmt::format(
      "{{\"format\": \"millpond-commit\", \"version\": 1,\n\"save_id\": {},\n\"sequence\": {},\n"
      "\"world_size\": {},\n\"stores\": [",
      quoted(commit.save_id), commit.sequence, commit.world_size);
  const char* before = "\n";
  for (const StoreRecord& store : commit.stores) {
    text += fmt::format(
        "{}{{\"rank\": {}, \"uid\": {}, \"manifest_bytes\": {}, \"manifest\": \"{}\"}}", before,
        store.rank, quoted(store.uid), store.manifest_bytes, store.manifest_digest);
    before = ",\n";
  }
  text += "]";
  return text + end_of(text);
}

Commit parse_commit(std::string_view json, const std::string& path, std::string_view save_id) {
  check_format(json, path, "millpond-commit");
  const std::string_view body = json.substr(0, json.size() - std::min(json.size(), kEndBytes));
  if (json.substr(body.size()) != end_of(body)) {
    throw Error(MILLPOND_E_CORRUPT, "read", "the file's bytes do not have the digest at its end")
        .path(path)
        .at(body.size())
        .remedy("The file was damaged or edited: use another checkpoint");
  }
  Commit commit;
  const auto row = [&](std::string_view key, JsonObject& object) {
    if (key != "stores") throw object.corrupt("a row where none belongs");
    StoreRecord store;
    store.rank = static_cast<std::uint32_t>(object.number("rank", UINT32_MAX));
    store.uid = object.text("uid");
    store.manifest_bytes = object.number("manifest_bytes");
    store.manifest_digest = object.digest("manifest");
    object.done();
    commit.stores.push_back(std::move(store));
  };
  const auto whole = [&](JsonObject& object) {
    object.text("format");
    object.number("version");
    commit.save_id = object.digest("save_id");
    commit.sequence = object.number("sequence");
    commit.world_size = static_cast<std::uint32_t>(object.number("world_size", UINT32_MAX));
    object.rows("stores");
    object.digest("digest");
    object.done();
    if (commit.save_id != save_id) throw object.corrupt("it belongs to another save id");
    check_stores(commit, object);
  };
  read_strict_json(json, path, kCommitKeys, row, whole);
  return commit;
}

void check_uid(std::string_view uid) {
  const auto refused = [&](const char* reason) {
    return Error(MILLPOND_E_ARGUMENT, "check store", reason)
        .field("uid \"" + std::string(uid.substr(0, 130)) + "\"")
        .remedy("Name stores like rank00000/opt0_0");
  };
  if (uid.size() > 128) throw refused("the name has more than 128 bytes");
  std::string_view rest = uid;
  while (true) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    if (part.empty() || part == "." || part == "..") throw refused("an empty, . or .. component");
    for (const char c : part) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (!letter && !(c >= '0' && c <= '9') && c != '_' && c != '.' && c != '-') {
        throw refused("only A-Z, a-z, 0-9, _, /, . and - are allowed");
      }
    }
    if (part.starts_with("COMMIT") || part.starts_with("manifest.json") ||
        (part.starts_with("bucket") && (part.ends_with(".bin") || part.ends_with(".sums")))) {
      throw refused("a component that is a file's name in a checkpoint");
    }
    if (part.size() == rest.size()) return;
    rest.remove_prefix(part.size() + 1);
  }
}

}  // namespace millpond::checkpoint
