#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "plugin/io/engine.h"
#include "plugin/io/os_error.h"
#include "plugin/io/threads_engine.h"
#include "plugin/io/uring_engine.h"

namespace millpond::plugin {
namespace {

constexpr std::uint32_t kDepth = 32;         // a drive is at its ceiling with 8 transfers of 1 MiB
constexpr std::uint32_t kSmallestDepth = 8;  // below that, threads serve as well
constexpr std::size_t kTrialBytes = 1u << 20;

std::string explain(int error) {
  std::string text = errno_text(error);
  if (error == EPERM || error == EACCES) return text + ", refused by a sandbox or by the system";
  if (error == ENOSYS) return text + ", not in this kernel or refused by a sandbox";
  if (error == ENOMEM) return text + ", RLIMIT_MEMLOCK";
  if (error == EMFILE || error == ENFILE) return text + ", RLIMIT_NOFILE";
  return text;
}

// What the log says of registered memory before the real region is known.
std::string try_registration(RawEngine* raw) {
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(4096, kTrialBytes)), &std::free);
  if (!memory) return "";
  raw->use_memory(memory.get(), kTrialBytes);
  std::string note = raw->note();
  raw->use_memory(nullptr, 0);
  return note;
}

// Locked memory may be short for a deep ring and enough for a shallow one.
std::unique_ptr<RawEngine> deepest_ring(std::uint32_t depth) {
  for (;; depth = std::max(depth / 2, kSmallestDepth)) {
    try {
      return make_uring_engine(depth);
    } catch (const Error& error) {
      if (error.native() != ENOMEM || depth <= kSmallestDepth) throw;
    }
  }
}

}  // namespace

EngineChoice make_raw_engine(const std::string& kind, std::uint32_t queue_depth) {
  if (kind != "auto" && kind != "io_uring" && kind != "threads") {
    throw Error(MILLPOND_E_OPTION, "choose an I/O engine", "no engine is called \"" + kind + "\"")
        .field("options.io_engine")
        .remedy("Use \"auto\", \"io_uring\" or \"threads\"");
  }
  const std::uint32_t depth = queue_depth == 0 ? kDepth : queue_depth;
  EngineChoice choice;
  if (kind == "threads") {
    choice.raw = make_threads_engine(depth);
    choice.reason = "I/O engine threads: as the options say";
    return choice;
  }
  try {
    choice.raw = deepest_ring(depth);
  } catch (const Error& error) {
    if (kind == "io_uring") {
      throw Error(MILLPOND_E_IO, "set up io_uring", explain(error.native()))
          .field("options.io_engine")
          .os(error.native())
          .remedy("Allow io_uring to this process, or let io_engine be \"auto\"");
    }
    choice.raw = make_threads_engine(depth);
    choice.reason =
        "I/O engine threads: io_uring is not to be had (" + explain(error.native()) + ")";
    return choice;
  }
  const std::string note = try_registration(choice.raw.get());
  choice.reason = note.empty() ? "I/O engine io_uring: registered memory and files"
                               : "I/O engine io_uring_plain: " + note;
  if (choice.raw->depth() < depth) {
    choice.reason += ", depth " + std::to_string(choice.raw->depth()) + " instead of " +
                     std::to_string(depth) + " (RLIMIT_MEMLOCK)";
  }
  return choice;
}

}  // namespace millpond::plugin
