#include "plugin/probe/update.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "plugin/core/thread_pool.h"
#include "plugin/probe/median.h"
#include "plugin/probe/pages.h"

namespace millpond::plugin {
namespace {

using kernels::Element;
using kernels::Storage;

constexpr std::uint64_t kBlockElements = 1 << 18;

// One segment or array of the synthetic state, cut into blocks that threads take.
struct Array {
  Pages pages;
  std::uint64_t block_bytes;
  Array(std::uint64_t blocks, std::uint64_t bytes) : pages(blocks * bytes), block_bytes(bytes) {
    pages.fill_noise();
  }
  std::byte* block(std::uint64_t index) const { return pages.data() + index * block_bytes; }
};

// Loads and stores of whole words: nothing is computed that could take longer than the memory does.
template <std::uint64_t kBytes>
inline void renew(std::byte* memory, std::uint64_t word) {
  for (std::uint64_t i = 0; i < kBytes; i += 8) {
    std::uint64_t value;
    std::memcpy(&value, memory + i, 8);
    value ^= word;
    std::memcpy(memory + i, &value, 8);
  }
}
template <std::uint64_t kBytes>
inline std::uint64_t load(const std::byte* memory) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < kBytes; i += 8) {
    std::uint64_t value;
    std::memcpy(&value, memory + i, 8);
    sum ^= value;
  }
  return sum;
}
template <std::uint64_t kBytes>
inline void store(std::byte* memory, std::uint64_t word) {
  for (std::uint64_t i = 0; i < kBytes; i += 8) std::memcpy(memory + i, &word, 8);
}

// The arrays of one block. main NULL: the model is its own.
struct BlockArrays {
  std::byte* main;
  std::byte* exp_avg;
  std::byte* exp_avg_sq;
  const std::byte* grad;
  std::byte* model;
};

// What an update of a block loads and stores, all arrays side by side as it goes through them.
// Sizes are those of an element; scales of the moments, 1/64 of them, are left out.
template <std::uint64_t kMoment, std::uint64_t kGrad>
void move_block(const BlockArrays& block) {
  constexpr std::uint64_t kUnit = 64;  // elements: whole words of every array
  for (std::uint64_t e = 0; e < kBlockElements; e += kUnit) {
    const std::uint64_t word = load<kUnit * kGrad>(block.grad + e * kGrad) & 1;
    renew<kUnit * kMoment>(block.exp_avg + e * kMoment, word);
    renew<kUnit * kMoment>(block.exp_avg_sq + e * kMoment, word);
    if (block.main != nullptr) {
      renew<kUnit * 4>(block.main + e * 4, word);
      store<kUnit * 2>(block.model + e * 2, word);
    } else {
      renew<kUnit * 4>(block.model + e * 4, word);
    }
  }
}

using MoveBlock = void (*)(const BlockArrays&);
MoveBlock move_block_of(std::uint64_t moment, std::uint64_t grad) {
  if (grad == 4) {
    return moment == 4 ? move_block<4, 4> : moment == 2 ? move_block<2, 4> : move_block<1, 4>;
  }
  return moment == 4 ? move_block<4, 2> : moment == 2 ? move_block<2, 2> : move_block<1, 2>;
}

class Workload {
 public:
  explicit Workload(const UpdateRequest& request)
      : request_(request),
        own_main_(request.model == Element::kFp32),
        blocks_(
            std::max<std::uint64_t>((request.elements + kBlockElements - 1) / kBlockElements, 1)),
        main_(own_main_ ? 1 : blocks_, kBlockElements * 4),
        exp_avg_(blocks_, kernels::block_bytes(request.moments, kBlockElements)),
        exp_avg_sq_(blocks_, kernels::block_bytes(request.moments, kBlockElements)),
        grad_(blocks_, kBlockElements * kernels::item_bytes(request.grad)),
        model_(blocks_, kBlockElements * kernels::item_bytes(request.model)) {
    kernels::Hyper hyper{};
    hyper.variant = request.variant;
    hyper.lr = 1e-3;
    hyper.beta1 = 0.9;
    hyper.beta2 = 0.95;
    hyper.eps = 1e-8;
    hyper.weight_decay = 0.1;
    hyper.step = 10;
    hyper.grad_scale = 1.0F;
    hyper.decoupled = true;
    scalars_ = kernels::prepare(hyper);
  }

  std::uint64_t elements() const { return blocks_ * kBlockElements; }
  std::uint64_t bytes() const {
    const std::uint64_t model = own_main_ ? 2 * model_.block_bytes : model_.block_bytes;
    const std::uint64_t main = own_main_ ? 0 : 2 * main_.block_bytes;
    return blocks_ * (main + 4 * exp_avg_.block_bytes + grad_.block_bytes + model);
  }

  void update(ThreadPool& pool) {
    pool.run(blocks_, [this](std::uint64_t b) {
      kernels::Run run{};
      const auto stored = [](const Array& array, std::uint64_t block, Storage storage) {
        return kernels::StoredRun{array.block(block), kBlockElements, 0, storage};
      };
      if (!own_main_) run.main = stored(main_, b, Storage::kFp32);
      run.exp_avg = stored(exp_avg_, b, request_.moments);
      run.exp_avg_sq = stored(exp_avg_sq_, b, request_.moments);
      run.grad = grad_.block(b);
      run.model = model_.block(b);
      run.count = kBlockElements;
      run.shard_begin = b * kBlockElements;
      run.shard_numel = elements();
      run.grad_element = request_.grad;
      run.model_element = request_.model;
      run.moments_present = true;
      kernels::update(run, scalars_);
    });
  }

  void move(ThreadPool& pool) {
    const MoveBlock move_one =
        move_block_of(kernels::item_bytes(request_.moments), kernels::item_bytes(request_.grad));
    pool.run(blocks_, [this, move_one](std::uint64_t b) {
      move_one({own_main_ ? nullptr : main_.block(b), exp_avg_.block(b), exp_avg_sq_.block(b),
                grad_.block(b), model_.block(b)});
    });
  }

 private:
  const UpdateRequest request_;
  const bool own_main_;
  const std::uint64_t blocks_;
  Array main_, exp_avg_, exp_avg_sq_, grad_, model_;
  kernels::Scalars scalars_{};
};

}  // namespace

void UpdateRate::take(const std::vector<double>& updates, const std::vector<double>& ceilings) {
  update_seconds = median(updates);
  ceiling_seconds = median(ceilings);
  update_bytes_per_s = static_cast<double>(bytes) / update_seconds;
  ceiling_bytes_per_s = static_cast<double>(bytes) / ceiling_seconds;
}

UpdateRate measure_update(const UpdateRequest& request) {
  UpdateRate rate;
  rate.threads = request.threads != 0
                     ? request.threads
                     : std::max<std::uint32_t>(std::thread::hardware_concurrency(), 1);
  ThreadPool pool(rate.threads);
  Workload workload(request);
  rate.elements = workload.elements();
  rate.bytes = workload.bytes();
  workload.move(pool);
  workload.update(pool);
  std::vector<double> moves;
  std::vector<double> updates;
  const auto time = [](auto&& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (std::uint32_t i = 0; i < std::max(request.rounds, 1U); ++i) {
    moves.push_back(time([&] { workload.move(pool); }));
    updates.push_back(time([&] { workload.update(pool); }));
  }
  rate.take(updates, moves);
  return rate;
}

}  // namespace millpond::plugin
