// The one exception type on both sides of the ABI: millpond_status as a C++ exception. The plugin
// throws it inside and turns it into a status at its boundary; a C++ host turns a status into it.
// Header-only, C++17.
#ifndef MILLPOND_ERROR_HPP_
#define MILLPOND_ERROR_HPP_

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "base.h"

namespace millpond {

inline constexpr std::uint64_t kNoValue = UINT64_MAX;

// Built fluently where a failure is noticed:
//   throw Error(MILLPOND_E_IO, "read", "the file is shorter than the manifest
//   says").path(p).at(off).want(n, got).remedy("...");
class Error : public std::exception {
 public:
  Error(std::int32_t code, std::string operation, std::string reason)
      : code_(code), operation_(std::move(operation)), reason_(std::move(reason)) {}

  Error&& path(std::string value) && { return path_ = std::move(value), std::move(*this); }
  Error&& at(std::uint64_t offset) && { return offset_ = offset, std::move(*this); }
  Error&& want(std::uint64_t wanted, std::uint64_t got) && {
    return wanted_ = wanted, got_ = got, std::move(*this);
  }
  Error&& field(std::string value) && { return field_ = std::move(value), std::move(*this); }
  Error&& remedy(std::string value) && { return remedy_ = std::move(value), std::move(*this); }
  Error&& os(int error_number) && {
    return native_ = error_number, native_kind_ = MILLPOND_NATIVE_ERRNO, std::move(*this);
  }
  Error&& cuda(int error_number) && {
    return native_ = error_number, native_kind_ = MILLPOND_NATIVE_CUDA, std::move(*this);
  }

  std::int32_t code() const { return code_; }
  std::int32_t native() const { return native_; }
  std::uint32_t native_kind() const { return native_kind_; }
  std::uint64_t offset() const { return offset_; }
  std::uint64_t wanted() const { return wanted_; }
  std::uint64_t got() const { return got_; }
  const std::string& field_name() const { return field_; }
  const std::string& reason() const { return reason_; }

  // "read scratch/x.bin at offset 4096: the file is shorter ... (wanted 8192, got 100; errno 5).
  // Remedy."
  const char* what() const noexcept override {
    try {
      if (text_.empty()) text_ = compose();
      return text_.c_str();
    } catch (...) {
      return reason_.c_str();
    }
  }

 private:
  std::string compose() const {
    std::string text = operation_;
    const auto add = [&text](const char* before, const std::string& value, const char* after) {
      text.append(before).append(value).append(after);
    };
    const auto number = [](std::uint64_t value) {
      return value == kNoValue ? std::string("-") : std::to_string(value);
    };
    if (!path_.empty()) add(" ", path_, "");
    if (offset_ != kNoValue) add(" at offset ", std::to_string(offset_), "");
    if (!field_.empty()) add(text.empty() ? "[" : " [", field_, "]");
    if (!text.empty()) text.append(": ");
    text.append(reason_);
    if (wanted_ != kNoValue || got_ != kNoValue) {
      add(" (wanted ", number(wanted_), ", got ");
      text.append(number(got_)).append(")");
    }
    if (native_kind_ == MILLPOND_NATIVE_ERRNO) add(" [errno ", std::to_string(native_), "]");
    if (native_kind_ == MILLPOND_NATIVE_CUDA) add(" [cudaError ", std::to_string(native_), "]");
    if (!remedy_.empty()) add(". ", remedy_, "");
    return text;
  }

  std::int32_t code_;
  std::int32_t native_ = 0;
  std::uint32_t native_kind_ = MILLPOND_NATIVE_NONE;
  std::uint64_t offset_ = kNoValue;
  std::uint64_t wanted_ = kNoValue;
  std::uint64_t got_ = kNoValue;
  std::string operation_;
  std::string reason_;
  std::string path_;
  std::string field_;
  std::string remedy_;
  mutable std::string text_;
};

}  // namespace millpond

#endif  // MILLPOND_ERROR_HPP_
