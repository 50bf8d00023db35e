// Where parameters lie, and which of their elements a rank owns. The parameters of one optimizer
// stand one after another in a flat buffer, a "section", in the same places in the bf16 values and
// in the fp32 gradients. The section is cut into one equal range for each rank: a reduce-scatter
// gives a rank the gradients of its range, its optimizer moves the values there, an all-gather
// brings everybody the rest.
//
// What no number of ranks may change: parameters begin, and ranges are cut, at multiples of kSlice
// elements, so that sums over slices are the same sums everywhere, and an Adam whose vector body is
// shorter than that treats the parts as it would the whole.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_LAYOUT_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace millpond::sample {

inline constexpr std::size_t kBytes = 256;   // what a text is made of
inline constexpr std::size_t kSlice = 4096;  // elements

struct Shape {
  std::size_t context = 8;     // bytes seen
  std::size_t embedding = 48;  // numbers a byte
  std::size_t hidden = 384;
  std::size_t layers = 2;
};

// Matrices are [inputs, outputs], row-major.
struct Parameter {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::size_t numel;
  bool decays;   // belongs to the group with weight decay
  double range;  // first values are even in [-range, range)
  std::size_t section;
  std::size_t offset;  // of the first element in the section
};

// Elements [begin, end) of a parameter.
struct Piece {
  std::size_t parameter;
  std::size_t begin;
  std::size_t end;
  std::size_t section;
  std::size_t offset;  // of `begin` in the section
  std::size_t numel() const { return end - begin; }
};

class Layout {
 public:
  // The matrices and biases are section 0, the embedding, which has an optimizer of its own,
  // section 1.
  static constexpr std::size_t kSections = 2;

  Layout(const Shape& shape, std::uint32_t ranks);

  const Shape& shape() const { return shape_; }
  std::uint32_t ranks() const { return ranks_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  std::size_t parameter_count() const;

  // Elements of a section: `ranks` times those of a range. What no parameter covers stays zero.
  std::size_t elements(std::size_t section) const { return ranks_ * range(section); }
  std::size_t range(std::size_t section) const { return ranges_[section]; }

  // What a rank owns of a section, in order; nothing where its range is all padding.
  std::vector<Piece> pieces(std::uint32_t rank, std::size_t section) const;
  std::vector<Piece> pieces(std::uint32_t rank) const;  // of all sections, one after another

 private:
  void add(const std::string& name, std::vector<std::uint64_t> shape, bool decays, double range,
           std::size_t section);

  Shape shape_;
  std::uint32_t ranks_;
  std::vector<Parameter> parameters_;
  std::vector<std::size_t> ends_;    // of the sections' parameters
  std::vector<std::size_t> ranges_;  // elements of one rank
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_LAYOUT_H_
