// Whether this program was built with a sanitizer: tests that count milliseconds, bytes of memory,
// descriptors or allocations then take more, or take fewer rounds.
#ifndef MILLPOND_TESTS_SANITIZED_H_
#define MILLPOND_TESTS_SANITIZED_H_

// gcc tells of sanitizers by macros, clang by features.
#if defined(__has_feature)
#define MILLPOND_HAS_FEATURE(name) __has_feature(name)
#else
#define MILLPOND_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || MILLPOND_HAS_FEATURE(address_sanitizer)
#define MILLPOND_ADDRESS_SANITIZER 1
#else
#define MILLPOND_ADDRESS_SANITIZER 0
#endif
#if defined(__SANITIZE_THREAD__) || MILLPOND_HAS_FEATURE(thread_sanitizer)
#define MILLPOND_THREAD_SANITIZER 1
#else
#define MILLPOND_THREAD_SANITIZER 0
#endif

namespace millpond {

inline constexpr bool kAddressSanitizer = MILLPOND_ADDRESS_SANITIZER != 0;
inline constexpr bool kThreadSanitizer = MILLPOND_THREAD_SANITIZER != 0;
inline constexpr bool kSanitized = kAddressSanitizer || kThreadSanitizer;

}  // namespace millpond

#endif  // MILLPOND_TESTS_SANITIZED_H_
