#include "plugin/files/difference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/geometry.h"
#include "checkpoint/saves.h"
#include "plugin/files/shard_values.h"
#include "plugin/store/mismatch.h"

namespace millpond::plugin {
namespace {

using Document = nlohmann::ordered_json;

constexpr std::uint64_t kElementsAtOnce = 1 << 16;  // elements

struct Difference {
  std::uint64_t first = 0, count = 0;
  float a = 0, b = 0;
  double max_abs = 0;
};

Difference compare(const ShardValues& a, const ShardValues& b, std::uint32_t shard,
                   std::uint32_t segment, std::uint64_t numel) {
  Difference found;
  std::vector<float> of_a(std::min(kElementsAtOnce, numel)), of_b(of_a.size());
  for (std::uint64_t begin = 0; begin < numel; begin += kElementsAtOnce) {
    const std::uint64_t count = std::min(kElementsAtOnce, numel - begin);
    a.read(shard, segment, begin, count, of_a.data());
    b.read(shard, segment, begin, count, of_b.data());
    if (std::memcmp(of_a.data(), of_b.data(), count * sizeof(float)) == 0) continue;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (std::bit_cast<std::uint32_t>(of_a[i]) == std::bit_cast<std::uint32_t>(of_b[i])) continue;
      if (found.count++ == 0) {
        found.first = begin + i;
        found.a = of_a[i];
        found.b = of_b[i];
      }
      const double apart = std::fabs(static_cast<double>(of_a[i]) - static_cast<double>(of_b[i]));
      found.max_abs = std::isnan(apart) ? INFINITY : std::max(found.max_abs, apart);
    }
  }
  return found;
}

// JSON has no infinities and no NaN: they become text.
Document number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

}  // namespace

void diff_saves(checkpoint::FileSystem& fs_a, const std::string& save_id_a,
                checkpoint::FileSystem& fs_b, const std::string& save_id_b, const FilesWork& work) {
  const checkpoint::Commit a = checkpoint::find_save(fs_a, save_id_a);
  const checkpoint::Commit b = checkpoint::find_save(fs_b, save_id_b);
  Document head = {{"a", a.save_id}, {"b", b.save_id}};
  std::string text = head.dump();
  text.pop_back();
  work.emit(text + ", \"differing\": [");
  const char* before = "\n";
  bool equal = true;
  std::uint64_t elements = 0, step_a = 0, step_b = 0, done = 0;
  for (const checkpoint::StoreRecord& record : a.stores) {
    Profile profile = shards_of(checkpoint::read_manifest(fs_a, a.save_id, record));
    // Like no store's: that the other save has more parameters is no error here.
    profile.topology.push_back({"of a comparison", 0, 0});
    const ShardSources sources_a(fs_a, a, record.uid, profile);
    const ShardSources sources_b(fs_b, b, record.uid, profile);
    const ShardValues values_a(sources_a), values_b(sources_b);
    step_a = std::max(step_a, sources_a.completed());
    step_b = std::max(step_b, sources_b.completed());
    for (std::uint32_t i = 0; i < profile.shards.size(); ++i) {
      elements += profile.shards[i].numel();
      for (std::uint32_t s = 0; s < checkpoint::kSegmentCount; ++s) {
        if (!values_a.present(i, s) && !values_b.present(i, s)) continue;
        const Difference found = compare(values_a, values_b, i, s, profile.shards[i].numel());
        if (found.count == 0) continue;
        equal = false;
        const Document row = {{"key", profile.shards[i].key},
                              {"uid", record.uid},
                              {"segment", checkpoint::segment_name(s)},
                              {"first", found.first},
                              {"a", number(found.a)},
                              {"b", number(found.b)},
                              {"max_abs", number(found.max_abs)},
                              {"count", found.count}};
        work.emit(before + row.dump());
        before = ",\n";
      }
    }
    work.tell(++done, a.stores.size());
  }
  const Document tail = {{"equal", equal && step_a == step_b},
                         {"step_a", step_a},
                         {"step_b", step_b},
                         {"elements", elements}};
  work.emit("], " + tail.dump().substr(1) + "\n");
}

}  // namespace millpond::plugin
