// Compiled for AVX-512 and FMA; entered only through kernel_table().
#include "kernels/lanes_avx512.h"
#include "kernels/update_loop.h"

namespace millpond::kernels {

const KernelTable& avx512_kernels() {
  static constexpr KernelTable kTable = UpdateLoop<Lanes16, MklRoot>::table();
  return kTable;
}

}  // namespace millpond::kernels
