#include "host_adapters/sample/model.h"

#include "host_adapters/sample/random.h"

namespace millpond::sample {

Model::Model(const Layout& layout, std::uint64_t seed, Device& device)
    : layout_(layout), device_(device) {
  for (std::size_t s = 0; s < Layout::kSections; ++s) {
    values_[s] = Array<Bfloat>(device, layout.elements(s));
    grads_[s] = Array<float>(device, layout.elements(s));
  }
  std::vector<Bfloat> first;
  for (std::size_t p = 0; p < layout.parameters().size(); ++p) {
    const Parameter& parameter = layout.parameters()[p];
    first.resize(parameter.numel);
    for (std::size_t i = 0; i < parameter.numel; ++i) {
      first[i] = narrow(static_cast<float>(parameter.range * signed_unit_at(seed, p, i)));
    }
    device.upload(value(whole(p)), first.data(), first.size() * sizeof(Bfloat));
    if (parameter.section == 0 && parameter.shape.size() == 2) {
      stack_.push_back({p, parameter.shape[0], parameter.shape[1]});
    }
  }
}

Piece Model::whole(std::size_t p) const {
  const Parameter& parameter = layout_.parameters()[p];
  return {p, 0, parameter.numel, parameter.section, parameter.offset};
}

std::vector<Bfloat> Model::download(std::size_t p) const {
  std::vector<Bfloat> result(layout_.parameters()[p].numel);
  device_.download(result.data(), value(whole(p)), result.size() * sizeof(Bfloat));
  return result;
}

}  // namespace millpond::sample
