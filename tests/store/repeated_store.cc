#include "tests/store/repeated_store.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace millpond::tests {

RepeatedMemory::RepeatedMemory(std::uint64_t bytes, std::uint64_t length)
    : length_((length + bytes - 1) / bytes * bytes) {
  void* range =
      mmap(nullptr, length_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) throw std::runtime_error("mmap of the range failed");
  data_ = static_cast<std::uint8_t*>(range);
  const int pattern = memfd_create("pattern", MFD_CLOEXEC);
  bool done = pattern >= 0 && ftruncate(pattern, static_cast<off_t>(bytes)) == 0;
  for (std::uint64_t at = 0; done && at < length_; at += bytes) {
    done = mmap(data_ + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pattern, 0) !=
           MAP_FAILED;
  }
  close(pattern);
  if (!done) throw std::runtime_error("mmap of the pattern failed");
}

RepeatedMemory::~RepeatedMemory() { munmap(data_, length_); }

RepeatedStore::RepeatedStore(Job& job, Training& period, std::uint64_t elements)
    : job_(job),
      period_(period),
      elements_(elements),
      period_elements_(period.parameters[0].numel),
      model_(period_elements_ * 2, elements * 2),
      grad_(period_elements_ * 4, elements * 4) {
  Status status;
  EXPECT_EQ(table().create(job.runtime, str("rank00000/opt0_0"), &store_, &status), MILLPOND_OK)
      << status.text();
  std::memcpy(model_.data(), period.models[0].data(), period.models[0].size());
}

RepeatedStore::~RepeatedStore() {
  if (job_.runtime != nullptr) table().destroy(store_, nullptr);
}

std::int32_t RepeatedStore::bind(Status* status) {
  v1::HostProfile profile = period_.profile();
  v1::Shard& shard = *profile.mutable_shards(0);
  shard.set_global_shape(0, elements_);
  shard.set_box_shape(0, elements_);
  shard.set_flat_end(elements_);
  const std::string bytes = profile.SerializeAsString();
  millpond_shard_pointers pointers{};
  pointers.shard_id = period_.ids_from;
  pointers.model = {model_.data(), 0, elements_, MILLPOND_DEVICE_CPU, 0, MILLPOND_DTYPE_BF16, 0};
  millpond_bind_args args{};
  args.header = {sizeof(args), MILLPOND_TYPE_BIND_ARGS};
  args.profile = bytes.data();
  args.profile_bytes = bytes.size();
  args.shards = {&pointers, 1, sizeof(pointers)};
  args.stream = {MILLPOND_DEVICE_CPU, 0, 0};
  millpond_str text{};
  const std::int32_t code = table().bind(store_, &args, &text, status);
  report.Clear();
  EXPECT_TRUE(report.ParseFromArray(text.ptr, static_cast<int>(text.len)));
  return code;
}

std::int32_t RepeatedStore::step(std::uint64_t number, Status* status) {
  Training::Step made = period_.make_step(number);
  made.found_inf = 0;
  made.has_grad[0] = 1;
  made.pointers[0] = made.grads[0].data();
  const std::int32_t code = period_.step(made, status);
  if (code != MILLPOND_OK) return code;
  period_.resident_step(made);
  std::memcpy(grad_.data(), made.grads[0].data(), made.grads[0].size());
  made.pointers[0] = grad_.data();
  const millpond_step_args args = made.args();
  return table().step(store_, &args, status);
}

std::string RepeatedStore::differs_at(std::uint64_t begin, std::uint64_t count) {
  std::vector<float> large(count), small(count);
  Status status;
  for (std::uint32_t segment = 0; segment < 3; ++segment) {
    if (states().read(store_, period_.ids_from, segment, begin, count, large.data(), &status) !=
        MILLPOND_OK) {
      return status.text();
    }
    for (std::uint64_t done = 0; done < count;) {
      const std::uint64_t at = (begin + done) % period_elements_;
      const std::uint64_t piece = std::min(count - done, period_elements_ - at);
      if (states().read(period_.store, period_.ids_from, segment, at, piece, small.data() + done,
                        &status) != MILLPOND_OK) {
        return status.text();
      }
      done += piece;
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      if (std::memcmp(&large[i], &small[i], sizeof(float)) == 0) continue;
      return "segment " + std::to_string(segment) + " at " + std::to_string(begin + i) + ": " +
             std::to_string(large[i]) + " instead of " + std::to_string(small[i]);
    }
  }
  const std::vector<std::uint8_t>& model = period_.models[0];
  return std::equal(model.begin(), model.end(), model_.data()) ? "" : "the model differs";
}

}  // namespace millpond::tests
