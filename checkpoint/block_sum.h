// The checksum of a block: XXH3-64, seeded by where the block belongs, so that a block in the wrong
// place or of the wrong file does not pass. The same in scratch (in memory) and in a checkpoint
// (bucketNNNNN.sums).
#ifndef MILLPOND_CHECKPOINT_BLOCK_SUM_H_
#define MILLPOND_CHECKPOINT_BLOCK_SUM_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace millpond::checkpoint {

// XXH3-64 of the uid's bytes: the store's part of the seed, computed once.
std::uint64_t uid_seed(std::string_view uid);

// `block` is the block's index in its segment; segment is MILLPOND_SEGMENT_*; all bytes of the
// block, padding included.
std::uint64_t block_sum(std::uint64_t uid_seed, std::uint32_t bucket, std::uint32_t segment,
                        std::uint64_t block, const std::byte* bytes, std::uint64_t size);

}  // namespace millpond::checkpoint

#endif  // MILLPOND_CHECKPOINT_BLOCK_SUM_H_
