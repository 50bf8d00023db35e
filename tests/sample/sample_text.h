// A text for the tests: sentences of common words, drawn by a generator of the test's own.
#ifndef MILLPOND_TESTS_SAMPLE_SAMPLE_TEXT_H_
#define MILLPOND_TESTS_SAMPLE_SAMPLE_TEXT_H_

#include <stdlib.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace millpond::sample {

class TestDirectory {
 public:
  TestDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "millpond_sample_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
    std::filesystem::create_directory(scratch());
    std::ofstream file(text());
    file << sentences(40'000);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  ~TestDirectory() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path text() const { return path_ / "text"; }
  std::filesystem::path scratch() const { return path_ / "scratch"; }

  static std::string sentences(std::size_t bytes) {
    static constexpr std::array kWords = {
        "the",  "river", "and",  "mill", "a",      "miller", "who",    "ground", "corn", "in",
        "with", "water", "from", "pond", "turned", "wheel",  "slowly", "while",  "rain", "fell"};
    std::string text;
    std::uint32_t state = 12345;
    while (text.size() < bytes) {
      state = state * 1664525U + 1013904223U;
      text += kWords[(state >> 16) % kWords.size()];
      text += (state >> 28) == 0 ? ".\n" : " ";
    }
    return text;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace millpond::sample

#endif  // MILLPOND_TESTS_SAMPLE_SAMPLE_TEXT_H_
