#include <utility>

#include "plugin/guard/checks.h"
#include "plugin/guard/profile.h"
#include "plugin/guard/refusals.h"
#include "plugin/guard/rules.h"

namespace millpond::plugin {

std::vector<Refusal> judge(const Profile& profile, const GuardContext& context) {
  Refusals refusals;
  check_features(profile, context.minor, refusals);
  check_declarations(profile, context, refusals);
  std::vector<std::size_t> sound = check_shards(profile, context, refusals);
  check_overlaps(profile, std::move(sound), refusals);
  return refusals.take();
}

}  // namespace millpond::plugin
