#include "host_adapters/cli/serial.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "host_adapters/cli/serial_update.h"
#include "millpond/error.hpp"

namespace millpond::cli {
namespace {

constexpr std::uint64_t kMostAtOnce = 1ull << 30;  // of one pread or pwrite

class Stopwatch {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

Error failure(const char* operation, const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return Error(full ? MILLPOND_E_NO_SPACE : MILLPOND_E_IO, operation,
               std::generic_category().message(error))
      .path(path)
      .os(error)
      .remedy(full ? "Free space, or ask for fewer --params"
                   : "Look at the directory and its drive");
}

// Unlinked while open: a killed run leaves nothing.
int open_unlinked(const std::string& directory, std::string* path) {
  *path = directory + "/millpond-serial-XXXXXX";
  const int fd = mkostemp(path->data(), O_CLOEXEC);
  if (fd < 0) throw failure("create a file of the serial store", directory, errno);
  unlink(path->c_str());
  return fd;
}

}  // namespace

SerialStore::SerialStore(const SerialRequest& request, const Tensors& tensors, const Beat& beat)
    : request_(request),
      tensors_(tensors),
      has_main_(tensors.parameter_dtype() != MILLPOND_DTYPE_FP32),
      buffer_(std::min(request.bucket_elements, tensors.params()) *
              ((has_main_ ? 4 : 0) + 2 * (request.bf16_moments ? 2 : 4))) {
  if (request_.threads == 0) {
    request_.threads = std::max(std::thread::hardware_concurrency(), 1U);
  }
  const std::uint64_t count =
      (tensors.params() + request.bucket_elements - 1) / request.bucket_elements;
  buckets_.reserve(count);
  for (std::uint64_t begin = 0; begin < tensors.params(); begin += request.bucket_elements) {
    Bucket bucket;
    bucket.begin = begin;
    bucket.elements = std::min(request.bucket_elements, tensors.params() - begin);
    const auto& directories = request.directories;
    bucket.fd = open_unlinked(directories[buckets_.size() % directories.size()], &bucket.path);
    buckets_.push_back(bucket);
    try {
      std::memset(buffer_.data(), 0, buffer_.bytes());
      if (has_main_) {
        serial_widen(tensors.model_at(begin), tensors.parameter_dtype(),
                     reinterpret_cast<float*>(segment(0, bucket)), bucket.elements);
      }
      move(false, bucket);
    } catch (...) {
      for (const Bucket& made : buckets_) close(made.fd);
      throw;
    }
    if (beat) beat(buckets_.size(), count);
  }
}

SerialStore::~SerialStore() {
  for (const Bucket& bucket : buckets_) close(bucket.fd);
}

// Segments: main where there is one, exp_avg, exp_avg_sq.
std::uint64_t SerialStore::segment_bytes(std::uint32_t s, const Bucket& bucket) const {
  if (s == 0) return has_main_ ? bucket.elements * 4 : 0;
  return bucket.elements * (request_.bf16_moments ? 2 : 4);
}

std::byte* SerialStore::segment(std::uint32_t s, const Bucket& bucket) const {
  std::byte* at = buffer_.data();
  for (std::uint32_t before = 0; before < s; ++before) at += segment_bytes(before, bucket);
  return at;
}

void SerialStore::move(bool reading, const Bucket& bucket) const {
  const std::uint64_t bytes =
      segment_bytes(0, bucket) + segment_bytes(1, bucket) + segment_bytes(2, bucket);
  for (std::uint64_t at = 0; at < bytes;) {
    const std::uint64_t size = std::min(bytes - at, kMostAtOnce);
    const auto offset = static_cast<off_t>(at);
    const ssize_t moved = reading ? pread(bucket.fd, buffer_.data() + at, size, offset)
                                  : pwrite(bucket.fd, buffer_.data() + at, size, offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) {
      throw failure(reading ? "serial read" : "serial write", bucket.path, moved < 0 ? errno : EIO)
          .at(at)
          .want(size, 0);
    }
    at += static_cast<std::uint64_t>(moved);
  }
}

void SerialStore::on_threads(
    const Bucket& bucket,
    const std::function<void(std::uint64_t begin, std::uint64_t end)>& body) const {
  constexpr std::uint64_t kUnit = 4096;
  const std::uint64_t units = (bucket.elements + kUnit - 1) / kUnit;
  const auto edge = [&](std::uint32_t t) {
    return std::min(units * t / request_.threads * kUnit, bucket.elements);
  };
  std::vector<std::thread> team;
  for (std::uint32_t t = 1; t < request_.threads; ++t) {
    team.emplace_back([&, t] { body(edge(t), edge(t + 1)); });
  }
  body(0, edge(1));
  for (std::thread& member : team) member.join();
}

SerialStep SerialStore::step(const Beat& beat) {
  SerialStep figures;
  Stopwatch whole;
  ++steps_;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    Stopwatch phase;
    move(true, bucket);
    figures.read_s += phase.lap();
    on_threads(bucket, [&](std::uint64_t begin, std::uint64_t end) {
      const std::uint64_t moment = request_.bf16_moments ? 2 : 4;
      SerialRun run;
      if (has_main_) run.main = reinterpret_cast<float*>(segment(0, bucket)) + begin;
      run.exp_avg = segment(1, bucket) + begin * moment;
      run.exp_avg_sq = segment(2, bucket) + begin * moment;
      run.model = tensors_.model_at(bucket.begin + begin);
      run.grad = tensors_.grad_at(bucket.begin + begin);
      run.grad_dtype = tensors_.gradient_dtype();
      run.bf16_moments = request_.bf16_moments;
      run.count = end - begin;
      serial_update(run, SerialAdam{}, steps_);
    });
    figures.update_s += phase.lap();
    move(false, bucket);
    figures.write_s += phase.lap();
    const std::uint64_t bytes =
        segment_bytes(0, bucket) + segment_bytes(1, bucket) + segment_bytes(2, bucket);
    figures.bytes_read += bytes;
    figures.bytes_written += bytes;
    if (beat) beat(b + 1, buckets_.size());
  }
  figures.seconds = whole.lap();
  return figures;
}

}  // namespace millpond::cli
