// Runs a fuzz target over files, without a fuzzer: every build replays the corpus as a test, and a
// finding can be debugged with any compiler. Arguments: files or directories.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::size_t replay(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path)) count += replay(entry);
    return count;
  }
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  LLVMFuzzerTestOneInput(data, bytes.size());
  // Every beginning of it as well: what a cut file or message would be. The copy ends where the
  // bytes do, so that a sanitizer sees a read beyond them.
  for (std::size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 256) {
    const std::vector<std::uint8_t> cut(data, data + size);
    LLVMFuzzerTestOneInput(cut.data(), cut.size());
  }
  return 1;
}

}  // namespace

int main(int count, char** arguments) {
  std::size_t files = 0;
  for (int i = 1; i < count; ++i) files += replay(arguments[i]);
  std::printf("%zu inputs replayed\n", files);
  return files == 0 ? 1 : 0;
}
