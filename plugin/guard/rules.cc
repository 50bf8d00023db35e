#include "plugin/guard/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "millpond/features.h"
#include "plugin/guard/codes.h"

namespace millpond::plugin {
namespace {

struct Ruling {
  std::string_view name;
  RuleVerdict verdict;
  std::string_view required;
  std::string_view reason;
  std::string_view remedy;
};

constexpr Ruling allowed(std::string_view name) {
  return {name, RuleVerdict::kAllowed, {}, {}, {}};
}
constexpr Ruling refused(std::string_view name, std::string_view reason, std::string_view remedy) {
  return {name, RuleVerdict::kRefused, {}, reason, remedy};
}
constexpr Ruling requires_feature(std::string_view name, std::string_view required,
                                  std::string_view reason, std::string_view remedy) {
  return {name, RuleVerdict::kRequires, required, reason, remedy};
}

constexpr std::array kRulings{
    refused("param.fp8",
            "The step writes bf16, fp16 or fp32 parameters; fp8 ones carry scales that it does not "
            "maintain.",
            "Keep the parameters in bf16 (no fp8 parameter gather); fp8 compute is unaffected."),
    refused("param.fp4",
            "The step writes bf16, fp16 or fp32 parameters; fp4 ones carry scales that it does not "
            "maintain.",
            "Keep the parameters in bf16 (no fp4 parameter gather)."),
    refused("param.mxfp8_all_gather",
            "The gradient buffer is reused for gathered MXFP8 parameters, so gradients could be "
            "overwritten while they are read.",
            "Turn the reuse of the gradient buffer and the MXFP8 parameter gather off."),
    refused("optimizer.muon", "Muon needs whole matrices; only elementwise Adam can be streamed.",
            "Use Adam or AdamW for every parameter of this store, or leave Muon's parameters to "
            "the host's own optimizer."),
    refused("optimizer.layer_wise",
            "A layer-wise optimizer deals whole layers to ranks, which the flat shards of a store "
            "do not describe.",
            "Use the ordinary distributed optimizer."),
    refused("optimizer.amsgrad", "AMSGrad keeps a third moment that has no segment in the files.",
            "Set amsgrad to false."),
    refused("optimizer.multi_lora",
            "Several adapters behind one optimizer swap parameters under the store.",
            "Train one adapter at a time, or keep the adapters' small state resident."),
    refused("optimizer.precision_aware",
            "A precision-aware optimizer keeps mains or moments of its own, which the store would "
            "contradict.",
            "Turn it off; the option moments of the store gives 16-bit moments."),
    refused("optimizer.cpu_offload",
            "The host would keep and update optimizer state on the CPU beside the store.",
            "Turn the optimizer's CPU offload off: the store replaces it."),
    refused("optimizer.state_offload",
            "The host would move optimizer state that it no longer holds.",
            "Turn state offload off; phase/1 gives the store's memory back between phases."),
    refused("optimizer.cuda_graph",
            "A captured step replays kernels but not the reads and writes of files.",
            "Leave the optimizer step out of CUDA graphs."),
    refused("optimizer.non_distributed",
            "Without the distributed optimizer every rank keeps all of the state, and mains are "
            "held where the store does not see them.",
            "Turn the distributed optimizer on (it works with one data-parallel rank too)."),
    refused("parallel.independent_dp",
            "Replicas that train independently cannot agree on one verdict or one checkpoint.",
            "Run them as separate jobs."),
    allowed("parallel.fsdp"),
    allowed("parallel.distributed_optimizer"),
    allowed("parallel.overlap_param_gather"),
    refused("state.reset",
            "A reset would clear state that the host does not hold, and miss the "
            "streamed one.",
            "Turn the reset off; bind a new store to begin with fresh moments."),
    refused("state.weight_checksum",
            "The checksum reads mains, whose host tensors are empty while they are streamed.",
            "Turn it off; streamed blocks carry checksums of their own."),
    refused("state.witness", "A witness writes mains that the store would not see.",
            "Turn the witness off."),
    refused("state.params_norm",
            "The norm is computed from mains, whose host tensors are empty while they are "
            "streamed.",
            "Turn the log of the parameters' norm off."),
    refused("state.qk_clip",
            "Clipping writes query and key weights through mains that the host no longer holds.",
            "Turn QK clipping off."),
    requires_feature("trainer.offload", "trainer.offload.disk_target",
                     "The paused trainer's memory is taken from it without a backup on disk: it "
                     "would come back as garbage.",
                     "Give the trainer's offload a disk target."),
    allowed("trainer.offload.disk_target"),
    requires_feature("memory_saver", "memory_saver.disk_backup",
                     "The preloaded memory saver does not know the disk backup: what it pauses "
                     "would come back as garbage.",
                     "Install a memory saver with disk backup, or run without one."),
    allowed("memory_saver.disk_backup"),
    allowed("grad.accumulation"),
    allowed("grad.clip_norm"),
    allowed("grad.loss_scale"),
};

#define MILLPOND_NAME(since, must, name, meaning) std::string_view(name),
constexpr std::array kNames{MILLPOND_FEATURES(MILLPOND_NAME)};
#undef MILLPOND_NAME
constexpr std::size_t kFeatureCount = kNames.size();

// Joins the published names with the rulings. A name without a ruling, or a ruling without a name,
// does not compile.
consteval std::array<FeatureRule, kFeatureCount> join() {
  std::array<FeatureRule, kFeatureCount> rules{};
  std::size_t count = 0;
  const auto add = [&](std::uint32_t since, bool must, std::string_view name) {
    const auto* ruling = std::find_if(kRulings.begin(), kRulings.end(),
                                      [name](const Ruling& r) { return r.name == name; });
    if (ruling == kRulings.end()) throw "a feature of millpond/features.h has no ruling";
    rules[count++] = {name,           since,         must, ruling->verdict, ruling->required,
                      ruling->reason, ruling->remedy};
  };
#define MILLPOND_ADD(since, must, name, meaning) add(since, (must) != 0, name);
  MILLPOND_FEATURES(MILLPOND_ADD)
#undef MILLPOND_ADD
  if (kRulings.size() != count) throw "a ruling names no feature of millpond/features.h";
  return rules;
}

constexpr std::array<FeatureRule, kFeatureCount> kRules = join();

const FeatureRule* find_rule(std::string_view name, std::uint32_t minor) {
  const auto* found = std::find_if(kRules.begin(), kRules.end(),
                                   [&](const FeatureRule& r) { return r.name == name; });
  return found != kRules.end() && found->since_minor <= minor ? &*found : nullptr;
}

void refuse_unknown(const Feature& feature, std::uint32_t minor, Refusals& refusals) {
  const bool newer = find_rule(feature.name, UINT32_MAX) != nullptr;
  refusals.add(
      codes::kFeatureUnknown, feature.name,
      newer ? fmt::format("The feature is active, but newer than the negotiated minor {}.", minor)
            : "The feature is active, and this version does not know it.",
      "Turn it off, or upgrade Millpond to a version that lists it in millpond/features.h.");
}

void check_active(const Feature& feature, const FeatureRule& rule, bool required_active,
                  Refusals& refusals) {
  if (rule.verdict == RuleVerdict::kAllowed) return;
  if (rule.verdict == RuleVerdict::kRequires && required_active) return;
  std::string reason(rule.reason);
  if (!feature.detail.empty()) reason += fmt::format(" The host says: {}.", feature.detail);
  const bool requires_other = rule.verdict == RuleVerdict::kRequires;
  refusals.add(requires_other ? codes::kFeatureRequires : codes::kFeatureActive, rule.name, reason,
               rule.remedy);
}

}  // namespace

std::span<const FeatureRule> feature_rules() { return kRules; }

std::string verdict_text(const FeatureRule& rule) {
  switch (rule.verdict) {
    case RuleVerdict::kAllowed:
      return "allowed";
    case RuleVerdict::kRequires:
      return fmt::format("refused unless {} is active", rule.required);
    case RuleVerdict::kRefused:
      break;
  }
  return "refused";
}

void check_features(const Profile& profile, std::uint32_t minor, Refusals& refusals) {
  std::unordered_map<std::string_view, FeatureState> states;
  for (const Feature& feature : profile.features) {
    if (!states.emplace(feature.name, feature.state).second)
      refusals.add(codes::kFeatureDuplicate, feature.name,
                   "The feature is listed more than once, so its state is ambiguous.",
                   "List every feature once.");
  }
  const auto state_of = [&states](std::string_view name) {
    const auto found = states.find(name);
    return found == states.end() ? FeatureState::kNotEvaluated : found->second;
  };

  for (const Feature& feature : profile.features) {
    const FeatureRule* rule = find_rule(feature.name, minor);
    if (feature.state == FeatureState::kUnknown) {
      refusals.add(codes::kFeatureStateUnknown, feature.name,
                   "The feature's state is neither active nor inactive.",
                   "Send STATE_ACTIVE or STATE_INACTIVE.");
    } else if (feature.state == FeatureState::kActive && rule == nullptr) {
      refuse_unknown(feature, minor, refusals);
    } else if (feature.state == FeatureState::kActive) {
      check_active(feature, *rule, state_of(rule->required) == FeatureState::kActive, refusals);
    }
  }

  for (const FeatureRule& rule : kRules) {
    if (!rule.must_evaluate || rule.since_minor > minor) continue;
    if (state_of(rule.name) != FeatureState::kNotEvaluated) continue;
    refusals.add(codes::kFeatureNotEvaluated, rule.name,
                 "The host did not say whether this feature is active, and active it would be "
                 "dangerous.",
                 "Evaluate it in the adapter and list it as active or inactive.");
  }
}

}  // namespace millpond::plugin
