#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <tuple>

#include "plugin/guard/checks.h"
#include "plugin/guard/codes.h"
#include "plugin/guard/geometry.h"

namespace millpond::plugin {
namespace {

// A rank holds a parameter in one box as a rule; a few hundred where experts are interleaved. The
// limit keeps the comparison of boxes from becoming quadratic in hostile profiles.
constexpr std::size_t kMaxBoxes = 1024;

auto box_of(const Shard& s) { return std::tie(s.box_offset, s.box_shape); }
auto identity_of(const Shard& s) {
  return std::tie(s.key, s.box_offset, s.box_shape, s.flat_begin, s.flat_end);
}

class OverlapCheck {
 public:
  OverlapCheck(const Profile& profile, Refusals& refusals)
      : profile_(profile), refusals_(refusals) {}

  // All sound shards of one key, sorted by identity.
  void parameter(std::span<const std::size_t> shards) {
    if (!one_description(shards)) return;
    std::vector<std::size_t> boxes;  // one shard with elements for each box
    for_each_run(shards, box_of, [&](std::span<const std::size_t> in_box) {
      ranges(in_box);
      const auto full = std::find_if(in_box.begin(), in_box.end(),
                                     [this](std::size_t i) { return at(i).numel() != 0; });
      if (full != in_box.end()) boxes.push_back(*full);
    });
    between_boxes(boxes);
  }

  // Calls body for each run of shards with an equal part of their identity.
  template <typename Part, typename Body>
  void for_each_run(std::span<const std::size_t> shards, Part part, Body body) const {
    for (std::size_t begin = 0; begin < shards.size();) {
      std::size_t end = begin + 1;
      while (end < shards.size() && part(at(shards[end])) == part(at(shards[begin]))) ++end;
      body(shards.subspan(begin, end - begin));
      begin = end;
    }
  }

 private:
  const Shard& at(std::size_t index) const { return profile_.shards[index]; }

  bool one_description(std::span<const std::size_t> shards) {
    const Shard& first = at(shards.front());
    bool one = true;
    for (const std::size_t i : shards) {
      if (at(i).global_shape == first.global_shape && at(i).model_dtype == first.model_dtype)
        continue;
      one = false;
      refuse(codes::kShapeConflict, shards.front(), i,
             "describe one parameter with different global shapes or dtypes",
             "Send the same global shape and dtype with every shard of a parameter.");
    }
    return one;
  }

  // In one box: sorted by begin, a shard overlaps an earlier one iff it begins before the furthest
  // end so far.
  void ranges(std::span<const std::size_t> shards) {
    std::size_t furthest = shards.front();
    for (std::size_t n = 1; n < shards.size(); ++n) {
      const std::size_t i = shards[n];
      if (identity_of(at(i)) == identity_of(at(shards[n - 1]))) {
        refuse(codes::kShardDuplicate, shards[n - 1], i, "are the same range of one parameter",
               "List every shard once.");
      } else if (at(i).numel() != 0 && at(i).flat_begin < at(furthest).flat_end &&
                 at(furthest).numel() != 0) {
        refuse(codes::kShardOverlap, furthest, i, "share elements of one parameter",
               "Cut a parameter into shards that do not overlap.");
      }
      if (at(i).flat_end > at(furthest).flat_end) furthest = i;
    }
  }

  // Boxes are sorted by their offset, so those that may meet one in the first dimension follow it.
  void between_boxes(std::span<const std::size_t> boxes) {
    if (boxes.size() > kMaxBoxes) {
      refusals_.add(
          codes::kTooManyBoxes, at(boxes.front()).key,
          [&] {
            return fmt::format(
                "The parameter is cut into {} boxes on this rank; the "
                "limit is {}.",
                boxes.size(), kMaxBoxes);
          },
          "Describe it by fewer boxes, with flat ranges in them.");
      return;
    }
    for (std::size_t n = 0; n < boxes.size(); ++n) {
      const Shard& a = at(boxes[n]);
      for (std::size_t m = n + 1; m < boxes.size(); ++m) {
        const Shard& b = at(boxes[m]);
        if (b.box_offset[0] >= a.box_offset[0] + a.box_shape[0]) break;
        if (!boxes_intersect(a, b)) continue;
        refuse(codes::kShardOverlap, boxes[n], boxes[m],
               "lie in different boxes of one parameter that share elements",
               "Give this rank's boxes of a parameter so that they do not overlap.");
        break;
      }
    }
  }

  void refuse(std::string_view code, std::size_t a, std::size_t b, std::string_view what,
              std::string_view remedy) {
    refusals_.add(
        code, at(b).key,
        [&] {
          return fmt::format("{} and {} {}.", shard_name(profile_, a), shard_name(profile_, b),
                             what);
        },
        remedy);
  }

  const Profile& profile_;
  Refusals& refusals_;
};

}  // namespace

void check_overlaps(const Profile& profile, std::vector<std::size_t> sound, Refusals& refusals) {
  std::sort(sound.begin(), sound.end(), [&profile](std::size_t a, std::size_t b) {
    const auto left = identity_of(profile.shards[a]);
    const auto right = identity_of(profile.shards[b]);
    return left != right ? left < right : a < b;
  });
  OverlapCheck check(profile, refusals);
  check.for_each_run(
      sound, [](const Shard& s) { return std::tie(s.key); },
      [&check](std::span<const std::size_t> shards) { check.parameter(shards); });
}

}  // namespace millpond::plugin
