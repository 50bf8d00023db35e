// How far the resident memory of this process grew.
#ifndef MILLPOND_TESTS_STORE_PEAK_MEMORY_H_
#define MILLPOND_TESTS_STORE_PEAK_MEMORY_H_

#include <cstdint>
#include <fstream>
#include <string>

namespace millpond::tests {

// The highest resident size since reset(), above the size then. Files' pages that are mapped count.
class PeakMemory {
 public:
  // False where the kernel does not let it be measured.
  bool reset() {
    std::ofstream file("/proc/self/clear_refs");
    file << "5" << std::flush;
    before_ = bytes_of("VmRSS");
    return static_cast<bool>(file);
  }
  std::uint64_t grown() const {
    const std::uint64_t peak = bytes_of("VmHWM");
    return peak > before_ ? peak - before_ : 0;
  }

 private:
  static std::uint64_t bytes_of(const std::string& key) {
    std::ifstream file("/proc/self/status");
    std::string line;
    while (std::getline(file, line)) {
      if (line.rfind(key + ":", 0) == 0) return std::stoull(line.substr(key.size() + 1)) * 1024;
    }
    return 0;
  }

  std::uint64_t before_ = 0;
};

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_STORE_PEAK_MEMORY_H_
