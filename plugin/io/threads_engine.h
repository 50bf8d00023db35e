// pread and pwrite on a few persistent threads: for where io_uring cannot be had.
#ifndef MILLPOND_PLUGIN_IO_THREADS_ENGINE_H_
#define MILLPOND_PLUGIN_IO_THREADS_ENGINE_H_

#include <cstdint>
#include <memory>

#include "plugin/io/engine.h"

namespace millpond::plugin {

// Threads block all signals: a host's handlers run on its own threads, and its timers interrupt no
// transfer. Starts as many of `depth` as the process may have, at least one, or throws
// Error(E_IO).
std::unique_ptr<RawEngine> make_threads_engine(std::uint32_t depth);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_THREADS_ENGINE_H_
