// io_uring: one ring for reads and writes, registered memory and files where the process may.
#ifndef MILLPOND_PLUGIN_IO_URING_ENGINE_H_
#define MILLPOND_PLUGIN_IO_URING_ENGINE_H_

#include <cstdint>
#include <memory>

#include "plugin/io/engine.h"

namespace millpond::plugin {

// The ring has been tried with an operation when this returns. Throws Error(E_IO) with the errno of
// what was refused: EPERM or ENOSYS by a sandbox or an old kernel, ENOMEM by RLIMIT_MEMLOCK, EMFILE
// by RLIMIT_NOFILE.
std::unique_ptr<RawEngine> make_uring_engine(std::uint32_t depth);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_URING_ENGINE_H_
