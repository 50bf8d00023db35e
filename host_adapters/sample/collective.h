// What the ranks of a run do together. Every rank makes the same calls in the same order with the
// same sizes. Buffers lie in the memory of the stream's device (MILLPOND_DEVICE_CPU: in host
// memory), and the work is done in the order of that stream: it is enqueued, or done, when a call
// returns, and over when finish returns.
//
// A rank that died, or that does not come, is an Error: E_PEER or E_TIMEOUT, with the rank's number
// and what became of it. Afterwards every further call fails as well.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_COLLECTIVE_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "millpond/base.h"

namespace millpond::sample {

class Collective {
 public:
  Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;
  virtual ~Collective() = default;

  virtual std::string description() const = 0;
  virtual std::uint32_t rank() const = 0;
  virtual std::uint32_t size() const = 0;

  // `send` has size() parts of `count` elements; `receive` gets the sum of all ranks' part number
  // rank(). The sum is a balanced tree over the ranks, so that the same addends give the same bits
  // however many ranks hold them: ((0 + 1) + (2 + 3)) + ... `receive` may be that part of `send`,
  // whose other parts are then undefined.
  virtual void reduce_scatter(float* send, float* receive, std::size_t count,
                              millpond_stream stream) = 0;

  // `receive` gets size() times `bytes` bytes, ordered by rank. `send` may be the rank's own part
  // of `receive`.
  virtual void all_gather(const void* send, void* receive, std::size_t bytes,
                          millpond_stream stream) = 0;

  // Waits until everything enqueued in `stream` so far is over.
  virtual void finish(millpond_stream stream) = 0;
};

// Where partner `rank + distance` adds to `rank` in the tree: for distance 1, 2, 4, ... below
// `ranks`, each rank that is a multiple of 2 * distance and has such a partner takes its sum.
template <class Add>
void sum_as_tree(std::uint32_t ranks, Add add) {
  for (std::uint32_t distance = 1; distance < ranks; distance *= 2) {
    for (std::uint32_t rank = 0; rank + distance < ranks; rank += 2 * distance) {
      add(rank, rank + distance);
    }
  }
}

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_COLLECTIVE_H_
