// Block sums and zeros of a tile in memory, over the pool.
#ifndef MILLPOND_PLUGIN_PIPELINE_INTEGRITY_H_
#define MILLPOND_PLUGIN_PIPELINE_INTEGRITY_H_

#include <cstddef>
#include <cstdint>

#include "plugin/core/thread_pool.h"
#include "plugin/pipeline/state.h"

namespace millpond::plugin {

// The sums of every block that exists become the state's.
void make_sums(StateCore& state, std::uint32_t tile, const std::byte* memory, ThreadPool& pool);

// Throws Error(E_CORRUPT) for the first block whose sum is not the state's: path, block, offset in
// the file, wanted, got.
void verify_sums(const StateCore& state, std::uint32_t tile, const std::byte* memory,
                 ThreadPool& pool);

// Zeroes the segments of the tile that do not exist; all of them where `everything`.
void zero_absent(const StateCore& state, std::uint32_t tile, std::byte* memory, bool everything,
                 ThreadPool& pool);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PIPELINE_INTEGRITY_H_
