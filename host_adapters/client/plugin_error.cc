#include "millpond/client/plugin_error.h"

#include <array>
#include <cstring>
#include <utility>

namespace millpond::client {
namespace {

// Text of a fixed field; a peer that forgot the terminating zero is not read past the end.
template <std::size_t Size>
std::string text_of(const char (&field)[Size]) {
  return {field, strnlen(field, Size)};
}

Error error_of(std::int32_t code, const millpond_status& status) {
  Error error = Error(code, "", text_of(status.message))
                    .at(status.offset)
                    .want(status.wanted, status.got)
                    .field(text_of(status.field));
  switch (status.native_kind) {
    case MILLPOND_NATIVE_ERRNO:
      return std::move(error).os(status.native);
    case MILLPOND_NATIVE_CUDA:
      return std::move(error).cuda(status.native);
    default:
      return error;
  }
}

}  // namespace

millpond_status new_status() {
  millpond_status status;
  std::memset(&status, 0, sizeof(status));
  status.header = {sizeof(status), MILLPOND_TYPE_STATUS};
  status.offset = status.wanted = status.got = kNoValue;
  return status;
}

PluginError::PluginError(std::int32_t code, const millpond_status& status)
    : Error(error_of(code, status)), message_(reason()), flags_(status.flags) {
  if (message_.empty()) message_ = "the plugin gave no reason";
  message_ += " [" + code_name(code) + "]";
  if (status.code != code) {
    message_ += " (the status says " + code_name(status.code) + ", which contradicts the call)";
  }
}

BindRefused::BindRefused(std::int32_t code, const millpond_status& status,
                         std::vector<Refusal> refusals)
    : PluginError(code, status), refusals_(std::move(refusals)) {
  std::string text = "bind refused, " + std::to_string(refusals_.size()) +
                     (refusals_.size() == 1 ? " reason" : " reasons") + ":";
  std::size_t number = 0;
  for (const Refusal& refusal : refusals_) {
    text += "\n  " + std::to_string(++number) + ". " + refusal.subject + ": " + refusal.reason +
            " [" + refusal.code + "]";
    if (!refusal.remedy.empty()) text += "\n     What to do: " + refusal.remedy;
  }
  set_message(std::move(text));
}

std::string code_name(std::int32_t code) {
  static constexpr std::array kNames = {
      "OK",         "E_ARGUMENT", "E_UNKNOWN_TAIL", "E_VERSION", "E_OPTION",   "E_STATE",
      "E_REFUSED",  "E_IO",       "E_NO_SPACE",     "E_TIMEOUT", "E_CORRUPT",  "E_MISSING",
      "E_MISMATCH", "E_POISONED", "E_MEMORY",       "E_DEVICE",  "E_CALLBACK", "E_CANCELLED",
      "E_BUSY",     "E_FORKED",   "E_UNSUPPORTED",  "E_PEER",    "E_LEAKED",   "E_INTERNAL"};
  static_assert(kNames.size() == MILLPOND_E_INTERNAL + 1);
  if (code < 0 || static_cast<std::size_t>(code) >= kNames.size()) {
    return "code " + std::to_string(code);
  }
  return kNames[static_cast<std::size_t>(code)];
}

}  // namespace millpond::client
