#include "plugin/exports/read_struct.h"

#include "millpond/error.hpp"
#include "plugin/guard/utf8.h"

namespace millpond::plugin {
namespace {

// No struct or element of any version comes near it: a larger one is an uninitialised field.
constexpr std::uint64_t kLargestStruct = 1u << 16;

Error argument(std::string reason, std::string field) {
  return Error(MILLPOND_E_ARGUMENT, "read arguments", std::move(reason)).field(std::move(field));
}

std::string joined(std::string_view name, const char* member) {
  return std::string(name) + "." + member;
}

void check_tensor(const millpond_tensor& tensor, const Named& name, const char* member) {
  if (tensor.reserved == 0) return;
  throw argument("a reserved field is not zero", name.text() + "." + member + ".reserved")
      .want(0, tensor.reserved);
}

}  // namespace

std::string Named::text() const {
  std::string text(field);
  if (index != kWhole) text += "[" + std::to_string(index) + "]";
  return text;
}

void copy_grown(const void* from, std::size_t filled, void* to, std::size_t known,
                const Named& name) {
  const auto* bytes = static_cast<const std::byte*>(from);
  std::memcpy(to, bytes, std::min(filled, known));
  if (filled < known) std::memset(static_cast<std::byte*>(to) + filled, 0, known - filled);
  for (std::size_t i = known; i < filled; ++i) {
    if (bytes[i] == std::byte{0}) continue;
    throw Error(MILLPOND_E_UNKNOWN_TAIL, "read arguments",
                "the host has set a field at byte " + std::to_string(i) +
                    " that this version of the plugin does not know")
        .field(name.text())
        .at(i)
        .want(known, filled)
        .remedy("Use a plugin of the host's minor version, or leave the new field zero");
  }
}

void check_header(const millpond_header* from, std::uint32_t type, std::size_t first_size,
                  std::string_view name) {
  if (from == nullptr) throw argument("the pointer is NULL", std::string(name));
  if (from->type != type) {
    throw argument("the header says another type of struct", joined(name, "header.type"))
        .want(type, from->type);
  }
  if (from->size < first_size || from->size > kLargestStruct) {
    throw argument("the header's size is not that of any version of this struct",
                   joined(name, "header.size"))
        .want(first_size, from->size);
  }
}

void check_span(const millpond_span& span, std::size_t first_size, std::uint64_t expected,
                std::string_view field) {
  if (span.count != expected) {
    throw argument("the number of elements differs from the profile's", joined(field, "count"))
        .want(expected, span.count);
  }
  if (span.count == 0) return;
  if (span.ptr == nullptr) throw argument("the pointer is NULL", joined(field, "ptr"));
  if (span.stride < first_size || span.stride > kLargestStruct) {
    throw argument("the stride is not the size of any version of this element",
                   joined(field, "stride"))
        .want(first_size, span.stride);
  }
  std::uint64_t bytes = 0, end = 0;
  if (__builtin_mul_overflow(span.count, span.stride, &bytes) ||
      __builtin_add_overflow(reinterpret_cast<std::uintptr_t>(span.ptr), bytes, &end)) {
    throw argument("the range wraps around the end of memory", joined(field, "count"));
  }
}

void check_reserved(const millpond_step_args& args, const Named& name) {
  for (const std::uint8_t byte : args.reserved) {
    if (byte != 0) {
      throw argument("a reserved field is not zero", name.text() + ".reserved").want(0, byte);
    }
  }
}

void check_reserved(const millpond_shard_pointers& pointers, const Named& name) {
  check_tensor(pointers.model, name, "model");
  check_tensor(pointers.grad, name, "grad");
  check_tensor(pointers.main, name, "main");
}

std::string_view read_str(const millpond_str& text, std::string_view field, std::uint64_t longest) {
  if (text.len == 0) return {};
  if (text.ptr == nullptr) {
    throw argument("the pointer is NULL, the length is not 0", joined(field, "ptr"));
  }
  if (text.len > longest) {
    throw argument("the text is too long", joined(field, "len")).want(longest, text.len);
  }
  const std::string_view view(text.ptr, text.len);
  const std::size_t valid = valid_utf8(view);
  if (valid < view.size()) throw argument("the text is not UTF-8", std::string(field)).at(valid);
  return view;
}

void check_group(const millpond_group& group) {
  if (group.size == 0) throw argument("a group has at least one rank", "group.size").want(1, 0);
  if (group.rank >= group.size) {
    throw argument("the rank is not one of the group's", "group.rank")
        .want(group.size - 1, group.rank);
  }
}

}  // namespace millpond::plugin
