// The guard's verdict on each feature of millpond/features.h: the one table that decides.
#ifndef MILLPOND_PLUGIN_GUARD_RULES_H_
#define MILLPOND_PLUGIN_GUARD_RULES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "plugin/guard/profile.h"
#include "plugin/guard/refusals.h"

namespace millpond::plugin {

enum class RuleVerdict : std::uint8_t {
  kAllowed,   // may be ACTIVE
  kRefused,   // never ACTIVE
  kRequires,  // may be ACTIVE where `required` is ACTIVE too
};

struct FeatureRule {
  std::string_view name;
  std::uint32_t since_minor = 0;
  bool must_evaluate = false;
  RuleVerdict verdict = RuleVerdict::kRefused;
  std::string_view required;  // kRequires: the other feature
  std::string_view reason;    // why ACTIVE is refused; empty where it is allowed
  std::string_view remedy;
};

// In the order of millpond/features.h, one rule each.
std::span<const FeatureRule> feature_rules();

// The rule in words, for tables in documents: "allowed", "refused", "refused unless
// trainer.offload.disk_target is active".
std::string verdict_text(const FeatureRule& rule);

void check_features(const Profile& profile, std::uint32_t minor, Refusals& refusals);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_GUARD_RULES_H_
