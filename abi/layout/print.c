/* Prints the ABI as the compiler that built this sees it: layout.golden, when all is well. One text
 * in two languages: compiled as C11 and as C++20. Exit code 1: the lists beside this file and the
 * headers differ, or a struct has implicit padding. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "millpond/checkpoint.h"
#include "millpond/features.h"
#include "millpond/files.h"
#include "millpond/host.h"
#include "millpond/phase.h"
#include "millpond/plugin.h"
#include "millpond/probe.h"
#include "millpond/report.h"
#include "millpond/state.h"

#ifdef __cplusplus
#include <type_traits>
#define FIELD_IS(S, field, ...) \
  static_assert(std::is_same_v<decltype(S::field), __typeof__(__VA_ARGS__)>, #S "." #field)
#define TYPE_IS(T, ...) static_assert(std::is_same_v<T, __typeof__(__VA_ARGS__)>, #T)
#define ALIGNMENT(S) alignof(S)
#else
#define FIELD_IS(S, field, ...)                                                        \
  _Static_assert(_Generic(&((S*)0)->field, __typeof__(__VA_ARGS__)* : 1, default : 0), \
                 #S "." #field)
#define TYPE_IS(T, ...) \
  _Static_assert(_Generic((T*)0, __typeof__(__VA_ARGS__)* : 1, default : 0), #T)
#define ALIGNMENT(S) _Alignof(S)
#endif

static int faults = 0;
static size_t end = 0; /* of the field before */

static void print_field(const char* owner, const char* name, size_t offset, size_t size,
                        const char* type) {
  if (offset != end) {
    fprintf(stderr, "%s: bytes %zu to %zu before field %s are padding or not listed\n", owner, end,
            offset, name);
    faults = 1;
  }
  end = offset + size;
  printf("  %zu %zu %s %s\n", offset, size, name, type);
}

static void finish_struct(const char* name, size_t size) {
  if (size == end) return;
  fprintf(stderr, "%s: bytes %zu to %zu at the end are padding or not listed\n", name, end, size);
  faults = 1;
}

#define MILLPOND_STRUCT(S)                                                       \
  printf("struct %s size %zu align %zu\n", #S, sizeof(S), (size_t)ALIGNMENT(S)); \
  end = 0;
#define MILLPOND_FIELD(S, field, ...) \
  FIELD_IS(S, field, __VA_ARGS__);    \
  print_field(#S, #field, offsetof(S, field), sizeof(((S*)0)->field), #__VA_ARGS__);
#define MILLPOND_STRUCT_END(S) finish_struct(#S, sizeof(S));
#define MILLPOND_FUNCTION(T, ...) \
  TYPE_IS(T, __VA_ARGS__);        \
  printf("function %s %s\n", #T, #__VA_ARGS__);
#define MILLPOND_NUMBER(N) printf("number %s %" PRIu64 "\n", #N, (uint64_t)(N));
#define MILLPOND_TEXT(N) printf("text %s %s\n", #N, N);
#define MILLPOND_FEATURE_LINE(since, must_evaluate, name, meaning) \
  printf("feature %d %d %s\n", since, must_evaluate, name);

static void print_structs(void) {
#include "structs.inc"
}

static void print_constants(void) {
#include "constants.inc"
}

int main(void) {
  printf("millpond abi %u.%u\n", MILLPOND_ABI_MAJOR, MILLPOND_ABI_MINOR);
  print_constants();
  print_structs();
  MILLPOND_FEATURES(MILLPOND_FEATURE_LINE)
  return faults;
}
