// Calls that the system did not get done, made again by the calling thread.
#ifndef MILLPOND_PLUGIN_IO_RETRIES_H_
#define MILLPOND_PLUGIN_IO_RETRIES_H_

namespace millpond::plugin {

// Of one transfer. Thread: one.
class Retries {
 public:
  // Whether the call that failed with this errno is to be made again: EINTR at once and always,
  // EAGAIN after a millisecond, a thousand times. Other errors never.
  bool again(int error);

 private:
  int left_ = 1000;  // for EAGAIN
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_IO_RETRIES_H_
