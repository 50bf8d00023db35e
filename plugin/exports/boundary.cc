#include "plugin/exports/boundary.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "millpond/error.hpp"

namespace millpond::plugin {
namespace {

// A larger size is not a newer host but an uninitialised header.
constexpr std::uint32_t kLargestStatus = 1u << 16;

bool usable(const millpond_status* status) {
  return status == nullptr ||
         (status->header.type == MILLPOND_TYPE_STATUS &&
          status->header.size >= offsetof(millpond_status, code) + sizeof(status->code) &&
          status->header.size <= kLargestStatus);
}

// As much of `text` as fits `capacity` bytes with its terminator, not ending inside a character.
void put_text(char* to, std::size_t capacity, std::string_view text) noexcept {
  if (capacity == 0) return;
  std::size_t length = std::min(text.size(), capacity - 1);
  if (length < text.size()) {
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0u) == 0x80u) --length;
  }
  if (length > 0) std::memcpy(to, text.data(), length);  // an empty view may point nowhere
  std::memset(to + length, 0, capacity - length);
}

// What is known of a failure, pointing into the exception that is being handled.
struct Outcome {
  std::int32_t code = MILLPOND_OK;
  std::int32_t native = 0;
  std::uint32_t native_kind = MILLPOND_NATIVE_NONE;
  std::uint32_t flags = 0;
  std::uint64_t offset = kNoValue, wanted = kNoValue, got = kNoValue;
  std::string_view field, message;
};

void publish(const Outcome& outcome, millpond_status* status) noexcept {
  if (status == nullptr) return;
  const std::size_t size = status->header.size;
  auto put = [&](std::size_t offset, const auto& value) {
    if (offset + sizeof(value) <= size) {
      std::memcpy(reinterpret_cast<std::byte*>(status) + offset, &value, sizeof(value));
    }
  };
  auto put_string = [&](std::size_t offset, std::size_t capacity, std::string_view text) {
    if (offset >= size) return;
    put_text(reinterpret_cast<char*>(status) + offset, std::min(capacity, size - offset), text);
  };
  put(offsetof(millpond_status, code), outcome.code);
  put(offsetof(millpond_status, native), outcome.native);
  put(offsetof(millpond_status, native_kind), outcome.native_kind);
  put(offsetof(millpond_status, flags), outcome.flags);
  put(offsetof(millpond_status, offset), outcome.offset);
  put(offsetof(millpond_status, wanted), outcome.wanted);
  put(offsetof(millpond_status, got), outcome.got);
  put_string(offsetof(millpond_status, field), sizeof(status->field), outcome.field);
  put_string(offsetof(millpond_status, message), sizeof(status->message), outcome.message);
  if (size > sizeof(millpond_status)) {
    std::memset(reinterpret_cast<std::byte*>(status) + sizeof(millpond_status), 0,
                size - sizeof(millpond_status));
  }
}

}  // namespace

std::int32_t guarded_call(millpond_status* status, GuardedBody body, void* closure) noexcept {
  if (!usable(status)) return MILLPOND_E_ARGUMENT;
  Outcome outcome;
  try {
    body(closure, outcome.flags);
    publish(outcome, status);
  } catch (const Error& error) {
    outcome.code = error.code() == MILLPOND_OK ? MILLPOND_E_INTERNAL : error.code();
    outcome.native = error.native();
    outcome.native_kind = error.native_kind();
    outcome.offset = error.offset();
    outcome.wanted = error.wanted();
    outcome.got = error.got();
    outcome.field = error.field_name();
    outcome.message = error.what();
    publish(outcome, status);
  } catch (const std::bad_alloc&) {
    outcome.code = MILLPOND_E_MEMORY;
    outcome.message =
        "the process has no memory left for what this call needs beside the buffers of "
        "host_memory_bytes. Give the job more memory, or lower host_memory_bytes";
    publish(outcome, status);
  } catch (const std::exception& error) {
    outcome.code = MILLPOND_E_INTERNAL;
    outcome.message = error.what();
    publish(outcome, status);
  } catch (...) {
    outcome.code = MILLPOND_E_INTERNAL;
    outcome.message = "an exception of unknown type";
    publish(outcome, status);
  }
  return outcome.code;
}

}  // namespace millpond::plugin
