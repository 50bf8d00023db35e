// A cudaError_t that is not success becomes an Error with CUDA's own name for it.
#ifndef MILLPOND_PLUGIN_DEVICE_CUDA_CHECK_H_
#define MILLPOND_PLUGIN_DEVICE_CUDA_CHECK_H_

#include <cstdint>

#include "millpond/error.hpp"

namespace millpond::plugin {

// E_MEMORY where memory was refused, else E_DEVICE. Where the process's context is lost the remedy
// says to restart. `bytes`: what was asked for.
Error cuda_error(int code, const char* operation, std::uint64_t bytes = kNoValue);

inline void check_cuda(int code, const char* operation, std::uint64_t bytes = kNoValue) {
  if (code != 0) throw cuda_error(code, operation, bytes);
}

// Whether every later call in this process will fail too.
bool context_is_lost(int code);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_DEVICE_CUDA_CHECK_H_
