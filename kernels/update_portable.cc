#include "kernels/lanes_portable.h"
#include "kernels/update_loop.h"

namespace millpond::kernels {

// MKL's square root needs AVX-512's rsqrt14: variant_supported() refuses that variant elsewhere.
const KernelTable& portable_kernels() {
  static constexpr KernelTable kTable = UpdateLoop<Lane, IeeeRoot>::table();
  return kTable;
}

}  // namespace millpond::kernels
