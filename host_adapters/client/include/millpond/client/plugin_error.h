// What a host catches: the plugin's own words as C++ exceptions. Every failure of the client
// library is a millpond::Error (millpond/error.hpp); those that the plugin reported are
// PluginError, and a bind that the guard refused is BindRefused with every reason.
#ifndef MILLPOND_CLIENT_PLUGIN_ERROR_H_
#define MILLPOND_CLIENT_PLUGIN_ERROR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "millpond/base.h"
#include "millpond/error.hpp"

namespace millpond::client {

// An empty status, ready to be passed to the plugin.
millpond_status new_status();

// code(), field_name(), offset(), wanted(), got(), native() are the status's; what() is its message
// as the plugin wrote it.
class PluginError : public Error {
 public:
  // `code` is the call's return value; a status that contradicts it is not believed.
  PluginError(std::int32_t code, const millpond_status& status);
  const char* what() const noexcept override { return message_.c_str(); }
  // The store needs a load before it can step again.
  bool poisoned() const { return (flags_ & MILLPOND_STATUS_POISONED) != 0; }

 protected:
  void set_message(std::string message) { message_ = std::move(message); }

 private:
  std::string message_;
  std::uint32_t flags_;
};

// One reason of the guard, as in handshake.proto's Refusal.
struct Refusal {
  std::string code;     // machine-readable, stable
  std::string subject;  // feature, shard key, option or field
  std::string reason;   // a sentence
  std::string remedy;   // what to do instead
};

// what() lists every refusal on lines of its own, each with its remedy.
class BindRefused : public PluginError {
 public:
  BindRefused(std::int32_t code, const millpond_status& status, std::vector<Refusal> refusals);
  const std::vector<Refusal>& refusals() const { return refusals_; }

 private:
  std::vector<Refusal> refusals_;
};

// "E_NO_SPACE" for MILLPOND_E_NO_SPACE; "code 99" for one that this version does not know.
std::string code_name(std::int32_t code);

}  // namespace millpond::client

#endif  // MILLPOND_CLIENT_PLUGIN_ERROR_H_
