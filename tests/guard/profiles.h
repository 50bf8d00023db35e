// Profiles for tests, made with the official Protocol Buffers library.
#ifndef MILLPOND_TESTS_GUARD_PROFILES_H_
#define MILLPOND_TESTS_GUARD_PROFILES_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "millpond/handshake.pb.h"
#include "plugin/guard/profile.h"

namespace millpond::tests {

// Accepted by the guard: one group, three bf16 shards of two parameters and one fp32 shard on the
// CPU, every feature inactive, arithmetic host/1.
v1::HostProfile good_profile();

// The context that good_profile() is accepted in.
plugin::GuardContext good_context();

// The feature's entry; added where there is none.
v1::Feature& feature(v1::HostProfile& profile, const std::string& name);
void remove_feature(v1::HostProfile& profile, const std::string& name);

// Through the wire: serialized by the official library, read by the plugin.
plugin::Profile read(const v1::HostProfile& profile);
std::vector<plugin::Refusal> judge(const v1::HostProfile& profile,
                                   const plugin::GuardContext& context = good_context());

using CodeAndSubject = std::pair<std::string, std::string>;
std::multiset<CodeAndSubject> codes_of(const std::vector<plugin::Refusal>& refusals);

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_GUARD_PROFILES_H_
