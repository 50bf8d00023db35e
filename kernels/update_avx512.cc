// Compiled for AVX-512 and FMA; entered only through kernel_table().
#if defined(__GNUC__) && !defined(__clang__)
// gcc's own header starts from undefined registers on purpose, and gcc 12 warns of it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include "kernels/lanes_avx512.h"
#include "kernels/update_loop.h"

namespace millpond::kernels {

const KernelTable& avx512_kernels() {
  static constexpr KernelTable kTable = UpdateLoop<Lanes16, MklRoot>::table();
  return kTable;
}

}  // namespace millpond::kernels
