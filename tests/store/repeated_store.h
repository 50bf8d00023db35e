// A store of one shard of any size whose model and gradient are a small pattern mapped again and
// again: gibibytes of state beside a few mebibytes of the host's memory. Element i must always have
// the value that element i % period has in a small store that lives through the same steps.
#ifndef MILLPOND_TESTS_STORE_REPEATED_STORE_H_
#define MILLPOND_TESTS_STORE_REPEATED_STORE_H_

#include <cstdint>
#include <string>

#include "tests/store/training.h"

namespace millpond::tests {

// `bytes` of shared memory, seen at every multiple of `bytes` of a range of `length`.
class RepeatedMemory {
 public:
  RepeatedMemory(std::uint64_t bytes, std::uint64_t length);
  ~RepeatedMemory();
  RepeatedMemory(const RepeatedMemory&) = delete;
  RepeatedMemory& operator=(const RepeatedMemory&) = delete;
  std::uint8_t* data() { return data_; }

 private:
  std::uint8_t* data_ = nullptr;
  std::uint64_t length_ = 0;
};

class RepeatedStore {
 public:
  // `period` is a bound Training of one bf16 parameter with fp32 gradients, of a multiple of 4096
  // elements, in another Job.
  RepeatedStore(Job& job, Training& period, std::uint64_t elements);
  ~RepeatedStore();
  RepeatedStore(const RepeatedStore&) = delete;
  RepeatedStore& operator=(const RepeatedStore&) = delete;

  std::int32_t bind(Status* status);
  // Both stores, and `period`'s oracle.
  std::int32_t step(std::uint64_t number, Status* status);
  // "" where mains, moments and the model from `begin` on are the period's, else what differs.
  std::string differs_at(std::uint64_t begin, std::uint64_t count);
  millpond_store* store() const { return store_; }
  v1::BindReport report;

 private:
  Job& job_;
  Training& period_;
  std::uint64_t elements_;
  std::uint64_t period_elements_;
  millpond_store* store_ = nullptr;
  RepeatedMemory model_;
  RepeatedMemory grad_;
};

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_STORE_REPEATED_STORE_H_
