// A small filesystem to fill up.
#ifndef MILLPOND_TESTS_STORE_SMALL_FILESYSTEM_H_
#define MILLPOND_TESTS_STORE_SMALL_FILESYSTEM_H_

#include <sys/mount.h>

#include <fstream>
#include <string>

#include "tests/store/training.h"

namespace millpond::tests {

// A tmpfs of 4 MiB while it lives; not mounted where that is not allowed (errno says why).
class SmallFilesystem {
 public:
  SmallFilesystem() : mounted_(mount("tmpfs", path().c_str(), "tmpfs", 0, "size=4m") == 0) {}
  ~SmallFilesystem() {
    if (mounted_) umount2(path().c_str(), MNT_DETACH);
  }
  SmallFilesystem(const SmallFilesystem&) = delete;
  SmallFilesystem& operator=(const SmallFilesystem&) = delete;
  bool mounted() const { return mounted_; }
  std::string path() const { return directory_.path(); }
  // Until nothing is free; the file that does it.
  std::string fill() const {
    const std::string name = path() + "/filler";
    std::ofstream file(name, std::ios::binary);
    const std::string block(4096, 'x');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
    return name;
  }

 private:
  TemporaryDirectory directory_;
  bool mounted_;
};

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_STORE_SMALL_FILESYSTEM_H_
