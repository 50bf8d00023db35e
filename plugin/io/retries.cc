#include "plugin/io/retries.h"

#include <cerrno>
#include <chrono>
#include <thread>

namespace millpond::plugin {

bool Retries::again(int error) {
  if (error == EINTR) return true;
  if (error != EAGAIN || left_ == 0) return false;
  --left_;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return true;
}

}  // namespace millpond::plugin
