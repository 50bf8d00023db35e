// A profile as the plugin read it against the same bytes as the official library read them.
#ifndef MILLPOND_TESTS_GUARD_SAME_PROFILE_H_
#define MILLPOND_TESTS_GUARD_SAME_PROFILE_H_

#include <string>

#include "millpond/handshake.pb.h"
#include "plugin/guard/profile.h"

namespace millpond::tests {

// Empty when every field agrees, else the first that does not.
std::string difference(const plugin::Profile& ours, const v1::HostProfile& official);

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_GUARD_SAME_PROFILE_H_
