// The text: batches from it, and what a bigram model makes of it.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_TEXT_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace millpond::sample {

struct Batch {
  std::vector<std::uint8_t> contexts;  // targets.size() rows of `context` bytes
  std::vector<std::uint8_t> targets;
};

class Text {
 public:
  // Throws Error where the file cannot be read or is shorter than 64 contexts.
  Text(const std::filesystem::path& path, std::size_t context);

  std::size_t size() const { return bytes_.size(); }
  std::size_t context() const { return context_; }
  // Which text this is, for a resumed run: XXH3 of the bytes.
  std::uint64_t fingerprint() const { return fingerprint_; }

  // The batch of a step: places drawn from the seed and the step's number, nothing else.
  void draw(std::uint64_t seed, std::uint64_t step, std::size_t count, Batch* batch) const;

  // `count` places spread evenly over the text, or every place where it has fewer. Always the same.
  std::vector<std::size_t> even_places(std::size_t count) const;
  void gather(const std::size_t* places, std::size_t count, Batch* batch) const;

  // Bits per byte at these places of the bigram model with the frequencies of this very text, which
  // no other bigram model beats on it as a whole.
  double bigram_bits_per_byte(const std::vector<std::size_t>& places) const;

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t context_;
  std::uint64_t fingerprint_;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_TEXT_H_
