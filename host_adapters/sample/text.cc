#include "host_adapters/sample/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>

#include "host_adapters/sample/random.h"
#include "millpond/error.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace millpond::sample {
namespace {

constexpr std::uint64_t kBatchStream = 0x6261746368;  // apart from those that initialise parameters

}  // namespace

Text::Text(const std::filesystem::path& path, std::size_t context) : context_(context) {
  std::ifstream file(path, std::ios::binary);
  if (file) bytes_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  if (!file || file.bad()) {
    throw Error(MILLPOND_E_MISSING, "read text", "the file cannot be read").path(path.string());
  }
  if (bytes_.size() < context * 64) {
    throw Error(MILLPOND_E_ARGUMENT, "read text", "the file is too short to learn from")
        .path(path.string())
        .want(context * 64, bytes_.size())
        .remedy("Give a longer --text, 64 times --context bytes at least, or a smaller --context");
  }
  fingerprint_ = XXH3_64bits(bytes_.data(), bytes_.size());
}

void Text::draw(std::uint64_t seed, std::uint64_t step, std::size_t count, Batch* batch) const {
  const std::size_t places = bytes_.size() - context_;
  std::vector<std::size_t> drawn(count);
  for (std::size_t i = 0; i < count; ++i) {
    drawn[i] = context_ + random_at(seed, kBatchStream + step, i) % places;
  }
  gather(drawn.data(), count, batch);
}

std::vector<std::size_t> Text::even_places(std::size_t count) const {
  const std::size_t places = bytes_.size() - context_;
  count = std::min(count, places);
  std::vector<std::size_t> even(count);
  for (std::size_t i = 0; i < count; ++i) even[i] = context_ + i * places / count;
  return even;
}

void Text::gather(const std::size_t* places, std::size_t count, Batch* batch) const {
  batch->contexts.resize(count * context_);
  batch->targets.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t* end = bytes_.data() + places[i];
    std::copy(end - context_, end, batch->contexts.data() + i * context_);
    batch->targets[i] = *end;
  }
}

double Text::bigram_bits_per_byte(const std::vector<std::size_t>& places) const {
  std::vector<std::array<double, 256>> pairs(256, std::array<double, 256>{});
  std::array<double, 256> firsts{};
  for (std::size_t i = 1; i < bytes_.size(); ++i) {
    pairs[bytes_[i - 1]][bytes_[i]] += 1.0;
    firsts[bytes_[i - 1]] += 1.0;
  }
  double bits = 0.0;
  for (const std::size_t place : places) {
    const std::uint8_t before = bytes_[place - 1];
    bits -= std::log2(pairs[before][bytes_[place]] / firsts[before]);
  }
  return bits / static_cast<double>(places.size());
}

}  // namespace millpond::sample
