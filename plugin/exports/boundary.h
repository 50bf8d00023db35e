// Where exceptions end. Every function of the table runs its body through guarded(), which turns
// what was thrown into a millpond_status: the one place that knows how.
#ifndef MILLPOND_PLUGIN_EXPORTS_BOUNDARY_H_
#define MILLPOND_PLUGIN_EXPORTS_BOUNDARY_H_

#include <cstdint>
#include <memory>
#include <type_traits>

#include "millpond/base.h"

namespace millpond::plugin {

// A body may say more than it throws: MILLPOND_STATUS_* go to `flags`, in success and in failure.
using GuardedBody = void (*)(void* closure, std::uint32_t& flags);
std::int32_t guarded_call(millpond_status* status, GuardedBody body, void* closure) noexcept;

// Runs `body`, which is `void()` or `void(std::uint32_t& flags)`. Returns the code that it also
// puts into `status`:
//   millpond::Error      its code, and message, field, native, offset, wanted, got
//   std::bad_alloc       MILLPOND_E_MEMORY
//   anything else        MILLPOND_E_INTERNAL
// `status` may be NULL. One whose header is wrong (type, a size below header and code, or absurdly
// large) is left untouched and answered with MILLPOND_E_ARGUMENT; the body does not run then. A
// caller that knows a smaller status gets the fields that fit, texts cut at a character's border
// and terminated; a caller that knows a larger one gets zeros behind what this build knows.
template <class Body>
std::int32_t guarded(millpond_status* status, Body&& body) noexcept {
  using Plain = std::remove_reference_t<Body>;
  GuardedBody call = [](void* closure, std::uint32_t& flags) {
    Plain& run = *static_cast<Plain*>(closure);
    if constexpr (std::is_invocable_v<Plain&, std::uint32_t&>) {
      run(flags);
    } else {
      (void)flags;
      run();
    }
  };
  return guarded_call(status, call,
                      const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_EXPORTS_BOUNDARY_H_
