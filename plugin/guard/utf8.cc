#include "plugin/guard/utf8.h"

#include <cstdint>

namespace millpond::plugin {
namespace {

// What may follow a lead byte: how many bytes, and the range of the first of them (Unicode, table
// 3-7).
struct Sequence {
  std::size_t trail;
  std::uint8_t low, high;
};

Sequence sequence_of(std::uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {1, 0x80, 0xBF};
  if (lead == 0xE0) return {2, 0xA0, 0xBF};
  if (lead == 0xED) return {2, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {2, 0x80, 0xBF};
  if (lead == 0xF0) return {3, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {3, 0x80, 0xBF};
  if (lead == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

std::size_t valid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<std::uint8_t>(text[at]);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    const Sequence sequence = sequence_of(lead);
    if (sequence.trail == 0 || text.size() - at <= sequence.trail) return at;
    const auto first = static_cast<std::uint8_t>(text[at + 1]);
    if (first < sequence.low || first > sequence.high) return at;
    for (std::size_t i = 2; i <= sequence.trail; ++i)
      if ((static_cast<std::uint8_t>(text[at + i]) & 0xC0) != 0x80) return at;
    at += sequence.trail + 1;
  }
  return at;
}

}  // namespace millpond::plugin
