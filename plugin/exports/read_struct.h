// Structs that cross the boundary, in both directions. A struct of which the other side knows fewer
// bytes is read with zeros for the rest; one of which it knows more is taken if the surplus is
// zero. Nothing here allocates unless it throws, except where a vector has to grow.
#ifndef MILLPOND_PLUGIN_EXPORTS_READ_STRUCT_H_
#define MILLPOND_PLUGIN_EXPORTS_READ_STRUCT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "millpond/checkpoint.h"
#include "millpond/plugin.h"
#include "millpond/report.h"

namespace millpond::plugin {

// Of every growable struct: its type number, the name that messages use, and the bytes that the
// first minor knew: the least that any host fills. A struct that grows keeps its first size here.
template <class T>
struct StructTraits;

#define MILLPOND_STRUCT_TRAITS(T, number, text)          \
  template <>                                            \
  struct StructTraits<T> {                               \
    static constexpr std::uint32_t kType = number;       \
    static constexpr const char* kName = text;           \
    static constexpr std::size_t kFirstSize = sizeof(T); \
  }
MILLPOND_STRUCT_TRAITS(millpond_host_api, MILLPOND_TYPE_HOST_API, "host_api");
MILLPOND_STRUCT_TRAITS(millpond_bind_args, MILLPOND_TYPE_BIND_ARGS, "bind_args");
MILLPOND_STRUCT_TRAITS(millpond_step_args, MILLPOND_TYPE_STEP_ARGS, "step_args");
MILLPOND_STRUCT_TRAITS(millpond_refresh_args, MILLPOND_TYPE_REFRESH_ARGS, "refresh_args");
MILLPOND_STRUCT_TRAITS(millpond_io_args, MILLPOND_TYPE_IO_ARGS, "io_args");
MILLPOND_STRUCT_TRAITS(millpond_step_figures, MILLPOND_TYPE_STEP_FIGURES, "step_figures");
MILLPOND_STRUCT_TRAITS(millpond_plan_figures, MILLPOND_TYPE_PLAN_FIGURES, "plan_figures");
MILLPOND_STRUCT_TRAITS(millpond_runtime_figures, MILLPOND_TYPE_RUNTIME_FIGURES, "runtime_figures");
MILLPOND_STRUCT_TRAITS(millpond_save_progress, MILLPOND_TYPE_SAVE_PROGRESS, "save_progress");
// Elements of spans have no header and no type.
MILLPOND_STRUCT_TRAITS(millpond_shard_pointers, 0u, "shard_pointers");
MILLPOND_STRUCT_TRAITS(millpond_group_step, 0u, "group_step");
#undef MILLPOND_STRUCT_TRAITS

// What a message calls the thing that it speaks of: "step_args", or "step_args.groups[3]". Text is
// made only when something is wrong.
struct Named {
  static constexpr std::uint64_t kWhole = UINT64_MAX;
  std::string_view field;
  std::uint64_t index = kWhole;
  std::string text() const;
};

// Copies at most `known` bytes from the `filled` bytes at `from` and zeroes the rest of `to`.
// Throws Error(E_UNKNOWN_TAIL) with the offset of the first non-zero byte beyond `known`.
void copy_grown(const void* from, std::size_t filled, void* to, std::size_t known,
                const Named& name);

// Throws Error(E_ARGUMENT): `from` NULL, another type, fewer bytes than the first minor's, or a
// size that no version has.
void check_header(const millpond_header* from, std::uint32_t type, std::size_t first_size,
                  std::string_view name);

// Throws Error(E_ARGUMENT): no pointer where count > 0, a stride below first_size or absurdly
// large, a range that wraps, or a count other than `expected`.
void check_span(const millpond_span& span, std::size_t first_size, std::uint64_t expected,
                std::string_view field);

// Reserved fields must be zero: what a later minor says in them would be lost.
void check_reserved(const millpond_step_args& args, const Named& name);
void check_reserved(const millpond_shard_pointers& pointers, const Named& name);
template <class T>
void check_reserved(const T& /*value*/, const Named& /*name*/) {}

// A whole struct of this build's size, its header as the caller filled it.
template <class T>
T read_struct(const T* from) {
  using Traits = StructTraits<T>;
  check_header(reinterpret_cast<const millpond_header*>(from), Traits::kType, Traits::kFirstSize,
               Traits::kName);
  T value;
  copy_grown(from, from->header.size, &value, sizeof(T), Named{Traits::kName});
  check_reserved(value, Named{Traits::kName});
  return value;
}

// All elements of a span into `into`, which keeps its capacity. `expected` is the count that the
// bound profile demands, checked before any element is touched. `field` is the span's name.
template <class T>
void read_span(const millpond_span& span, std::string_view field, std::uint64_t expected,
               std::vector<T>& into) {
  check_span(span, StructTraits<T>::kFirstSize, expected, field);
  into.resize(span.count);
  const std::byte* element = static_cast<const std::byte*>(span.ptr);
  for (std::uint64_t i = 0; i < span.count; ++i, element += span.stride) {
    copy_grown(element, span.stride, &into[i], sizeof(T), Named{field, i});
    check_reserved(into[i], Named{field, i});
  }
}

// The answer into a struct that the caller allocated: the bytes that it knows, zeros behind what
// this build knows. The caller's header stays. Throws Error(E_ARGUMENT) as check_header does.
template <class T>
void write_struct(const T& value, T* to) {
  using Traits = StructTraits<T>;
  check_header(reinterpret_cast<const millpond_header*>(to), Traits::kType, Traits::kFirstSize,
               Traits::kName);
  const std::size_t size = to->header.size;
  const std::size_t copied = std::min(size, sizeof(T));
  std::memcpy(reinterpret_cast<std::byte*>(to) + sizeof(millpond_header),
              reinterpret_cast<const std::byte*>(&value) + sizeof(millpond_header),
              copied - sizeof(millpond_header));
  if (size > copied) std::memset(reinterpret_cast<std::byte*>(to) + copied, 0, size - copied);
}

// A borrowed string. Throws Error(E_ARGUMENT): no pointer with a length, more than `longest` bytes,
// or not UTF-8.
std::string_view read_str(const millpond_str& text, std::string_view field,
                          std::uint64_t longest = 4096);

// Throws Error(E_ARGUMENT) where the group has no rank, or this process is not one of them.
void check_group(const millpond_group& group);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_EXPORTS_READ_STRUCT_H_
