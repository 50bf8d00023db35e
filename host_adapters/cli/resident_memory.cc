#include "host_adapters/cli/resident_memory.h"

#include <fstream>
#include <sstream>
#include <string>

namespace millpond::cli {
namespace {

// proc(5): "VmHWM:  12345 kB".
std::uint64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word;
    std::uint64_t kibibytes = 0;
    if (words >> word >> kibibytes && word == key) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace

std::uint64_t resident_bytes() { return status_bytes("VmRSS:"); }
std::uint64_t peak_resident_bytes() { return status_bytes("VmHWM:"); }

bool restart_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5";
  file.flush();
  return file.good();
}

}  // namespace millpond::cli
