// Any bytes as a profile: refused with an Error, or read as the official library reads them,
// judged, and answered with a report that the official library can read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "millpond/error.hpp"
#include "millpond/handshake.pb.h"
#include "plugin/guard/profile.h"
#include "tests/fuzz/demand.h"
#include "tests/guard/same_profile.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millpond;
  plugin::Profile profile;
  try {
    profile = plugin::read_profile(data, size);
  } catch (const Error& error) {
    fuzz::demand(error.code() == MILLPOND_E_ARGUMENT && error.field_name() == "bind_args.profile");
    fuzz::demand(error.offset() <= size);
    return 0;
  }
  v1::HostProfile official;
  fuzz::demand(official.ParseFromArray(data, static_cast<int>(size)));
  fuzz::demand(tests::difference(profile, official).empty());

  plugin::GuardContext context;
  context.has_update = true;
  const auto refusals = plugin::judge(profile, context);
  const std::string bytes = plugin::write_report(refusals, nullptr);
  v1::BindReport report;
  fuzz::demand(report.ParseFromString(bytes));
  fuzz::demand(static_cast<std::size_t>(report.refusals_size()) == refusals.size());
  if (!refusals.empty()) return 0;

  // Accepted: the pointers of nothing are refused by name, never followed.
  std::vector<millpond_shard_pointers> pointers(profile.shards.size());
  for (std::size_t i = 0; i < pointers.size(); ++i) pointers[i].shard_id = profile.shards[i].id;
  try {
    plugin::check_pointers(profile, pointers, false);
  } catch (const Error& error) {
    fuzz::demand(error.field_name().starts_with("bind_args.shards["));
  }
  return 0;
}
