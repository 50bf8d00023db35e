// Compiled for AVX2 and FMA; entered only through kernel_table().
#include "kernels/lanes_avx2.h"
#include "kernels/update_loop.h"

namespace millpond::kernels {

// MKL's square root needs AVX-512's rsqrt14: variant_supported() refuses that variant here.
const KernelTable& avx2_kernels() {
  static constexpr KernelTable kTable = UpdateLoop<Lanes8, IeeeRoot>::table();
  return kTable;
}

}  // namespace millpond::kernels
