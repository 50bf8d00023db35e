// B33: checkpoints of one number of ranks loaded by another, cut along ranges and along boxes. What
// an element must be is a function of its place in the whole parameter: a store of one rank that
// has everything and takes the same gradients says it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <thread>

#include "tests/checkpoint/meeting.h"
#include "tests/checkpoint/saved_training.h"

namespace millpond::tests {
namespace {

struct Whole {
  const char* key;
  std::vector<std::uint64_t> shape;
  millpond_dtype model = MILLPOND_DTYPE_BF16;
  std::uint64_t group = 0;
};
const std::vector<Whole> kWholes = {{"embed", {61, 130}},
                                    {"bias", {301}, MILLPOND_DTYPE_BF16, 1},
                                    {"mix", {9, 14, 40}},
                                    {"norm", {700}, MILLPOND_DTYPE_FP32, 1}};

// One rank's part of each parameter.
struct Box {
  std::vector<std::uint64_t> offset, shape;
  std::uint64_t begin = 0, end = 0;
  std::uint64_t global(const Whole& whole, std::uint64_t element) const {
    std::uint64_t rest = begin + element, index = 0, stride = 1;
    for (std::size_t d = whole.shape.size(); d-- > 0;) {
      index += (offset[d] + rest % shape[d]) * stride;
      rest /= shape[d];
      stride *= whole.shape[d];
    }
    return index;
  }
};
using Cuts = std::vector<Box>;  // by parameter

// `data` ranks share each box by ranges; `tensor` boxes along a dimension of each parameter (a
// parameter of one dimension is held by all of them alike).
Cuts cuts_of(std::uint32_t rank, std::uint32_t tensor, std::uint32_t data) {
  const std::uint64_t t = rank % tensor, d = rank / tensor;
  Cuts cuts;
  for (const Whole& whole : kWholes) {
    Box cut{std::vector<std::uint64_t>(whole.shape.size()), whole.shape, 0, 0};
    if (whole.shape.size() > 1) {
      const std::size_t along = whole.shape.size() - 1;
      const std::uint64_t size = whole.shape[along];
      cut.offset[along] = size * t / tensor;
      cut.shape[along] = size * (t + 1) / tensor - cut.offset[along];
    }
    std::uint64_t volume = 1;
    for (const std::uint64_t size : cut.shape) volume *= size;
    cut.begin = volume * d / data;
    cut.end = volume * (d + 1) / data;
    cuts.push_back(cut);
  }
  return cuts;
}

float value(std::size_t parameter, std::uint64_t element, std::uint64_t number) {
  const std::uint64_t mixed =
      (element * 2654435761u + parameter * 40503u + number * 69069u) % 10007u;
  return (static_cast<float>(mixed) - 5003.0f) * 1e-5f;
}

class World {
 public:
  World(const std::string& scratch, const std::string& options, std::vector<Cuts> cuts)
      : meeting_(static_cast<std::uint32_t>(cuts.size())), cuts_(std::move(cuts)) {
    for (std::uint32_t r = 0; r < cuts_.size(); ++r) {
      jobs_.push_back(std::make_unique<Job>(
          scratch,
          options + ", \"update_threads\": 1, \"local_size\": " + std::to_string(cuts_.size()),
          offer_allgather));
      std::vector<Parameter> parameters;
      for (std::size_t i = 0; i < kWholes.size(); ++i) {
        const Box& cut = cuts_[r][i];
        parameters.push_back(
            {kWholes[i].key, cut.end - cut.begin, kWholes[i].group, 0, kWholes[i].model});
      }
      ranks_.push_back(std::make_unique<Training>(
          *jobs_.back(), "rank" + std::to_string(10000 + r).replace(0, 1, "0") + "/opt0_0",
          parameters));
      for (std::size_t i = 0; i < kWholes.size(); ++i) {
        std::vector<std::uint8_t>& model = ranks_[r]->models[i];
        const std::uint64_t size = kWholes[i].model == MILLPOND_DTYPE_FP32 ? 4 : 2;
        for (std::uint64_t e = 0; e * size < model.size(); ++e) {
          const float main = value(i, cuts_[r][i].global(kWholes[i], e), 0);
          std::memcpy(&model[e * size], reinterpret_cast<const char*>(&main) + 4 - size, size);
        }
      }
      v1::HostProfile profile = ranks_[r]->profile();
      profile.set_arithmetic("torch_cpu_foreach/1");
      v1::Axis& axis = *profile.add_topology();
      axis.set_name("world");
      axis.set_rank(r);
      axis.set_size(static_cast<std::uint32_t>(cuts_.size()));
      for (std::size_t i = 0; i < kWholes.size(); ++i) {
        v1::Shard& shard = *profile.mutable_shards(static_cast<int>(i));
        const Box& cut = cuts_[r][i];
        shard.clear_global_shape();
        shard.clear_box_offset();
        shard.clear_box_shape();
        for (std::size_t d = 0; d < cut.shape.size(); ++d) {
          shard.add_global_shape(kWholes[i].shape[d]);
          shard.add_box_offset(cut.offset[d]);
          shard.add_box_shape(cut.shape[d]);
        }
        shard.set_flat_begin(cut.begin);
        shard.set_flat_end(cut.end);
      }
      Status status;
      EXPECT_EQ(ranks_[r]->bind(profile, &status), MILLPOND_OK) << status.text();
    }
  }

  void step(std::uint64_t number) {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      Training::Step step = ranks_[r]->make_step(number);
      step.found_inf = 0;
      step.grad_scale = 1;
      for (std::size_t i = 0; i < kWholes.size(); ++i) {
        for (std::uint64_t e = 0; e * 4 < step.grads[i].size(); ++e) {
          const float grad = value(i, cuts_[r][i].global(kWholes[i], e), number);
          std::memcpy(&step.grads[i][e * 4], &grad, 4);
        }
        step.has_grad[i] = 1;
        step.pointers[i] = step.grads[i].empty() ? nullptr : step.grads[i].data();
        if (step.grads[i].empty()) step.has_grad[i] = 0;
      }
      Status status;
      ASSERT_EQ(ranks_[r]->step(step, &status), MILLPOND_OK) << status.text();
    }
  }
  void save_all(const std::string& path) {
    together([&](Training& training, Job& job, millpond_group group) {
      Status status;
      millpond_save_id id{};
      EXPECT_EQ(checkpoints().save_begin(job.runtime, group, str(path), &id, &status), MILLPOND_OK)
          << status.text();
      EXPECT_EQ(save(training, path, &status, 0, id.text), MILLPOND_OK) << status.text();
      EXPECT_EQ(
          checkpoints().save_commit(job.runtime, group, {id.text, std::strlen(id.text)}, &status),
          MILLPOND_OK)
          << status.text();
    });
  }
  void load_all(const std::string& path) {
    together([&](Training& training, Job& job, millpond_group group) {
      Status status;
      EXPECT_EQ(load(training, path, &status, MILLPOND_IO_STAGE), MILLPOND_OK) << status.text();
      EXPECT_EQ(checkpoints().load_commit(job.runtime, group, &status), MILLPOND_OK)
          << status.text();
    });
  }
  // Every element of every rank is that of a store of one rank that has the whole.
  void expect_equal(World& whole) {
    for (std::size_t i = 0; i < kWholes.size(); ++i) {
      for (std::uint32_t s = kWholes[i].model == MILLPOND_DTYPE_FP32 ? 1 : 0; s < 3; ++s) {
        const std::vector<float> all = whole.ranks_[0]->read(i, s);
        for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
          const std::vector<float> part = ranks_[r]->read(i, s);
          for (std::uint64_t e = 0; e < part.size(); ++e) {
            const float& wanted = all[cuts_[r][i].global(kWholes[i], e)];
            ASSERT_EQ(std::memcmp(&part[e], &wanted, 4), 0)
                << kWholes[i].key << " segment " << s << " rank " << r << " element " << e << ": "
                << part[e] << " instead of " << wanted;
          }
        }
      }
      for (const auto& rank : ranks_) {
        if (rank->parameters[i].numel == 0) continue;
        EXPECT_EQ(rank->counter(i), whole.ranks_[0]->counter(i));
      }
    }
  }
  Training& rank(std::uint32_t r) { return *ranks_[r]; }
  Job& job(std::uint32_t r) { return *jobs_[r]; }

 private:
  template <typename Body>
  void together(Body&& body) {
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      const millpond_group group{reinterpret_cast<std::uint64_t>(&meeting_), r,
                                 static_cast<std::uint32_t>(ranks_.size())};
      threads.emplace_back([&, r, group] { body(*ranks_[r], *jobs_[r], group); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  Meeting meeting_;
  std::vector<Cuts> cuts_;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<std::unique_ptr<Training>> ranks_;
};

std::vector<Cuts> world_of(std::uint32_t tensor, std::uint32_t data) {
  std::vector<Cuts> cuts;
  for (std::uint32_t r = 0; r < tensor * data; ++r) cuts.push_back(cuts_of(r, tensor, data));
  return cuts;
}

std::map<std::string, std::string> bucket_bytes(const std::string& path) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(only_save(path))) {
    const std::string name = entry.path().lexically_relative(only_save(path)).string();
    if (entry.is_regular_file() && name != "COMMIT.json") files[name] = file_bytes(entry.path());
  }
  return files;
}

class Reshard : public ::testing::TestWithParam<const char*> {
 protected:
  std::string options() const {
    return std::string("\"tile_elements\": 4096, \"bucket_elements\": 3000, \"moments\": \"") +
           GetParam() + "\", \"host_memory_bytes\": 400000";
  }
  TemporaryDirectory scratch_, a_, b_, c_, d_;
};

TEST_P(Reshard, B33_4_to_6_to_1_to_4_gives_the_original_bytes_and_the_run_goes_on) {
  World whole(scratch_.path(), options(), world_of(1, 1));
  for (std::uint64_t n = 1; n <= 3; ++n) whole.step(n);
  World four(scratch_.path(), options(), world_of(1, 4));
  for (std::uint64_t n = 1; n <= 3; ++n) four.step(n);
  four.expect_equal(whole);
  four.save_all(a_.path());
  // Other buckets and tiles on the way; ranks in another order.
  const std::string other =
      "\"tile_elements\": 8192, \"bucket_elements\": 100000, \"moments\": \"" +
      std::string(GetParam()) + "\"";
  std::vector<Cuts> permuted = world_of(1, 6);
  std::swap(permuted[0], permuted[4]);
  std::swap(permuted[1], permuted[5]);
  World six(scratch_.path(), other, permuted);
  six.load_all(a_.path());
  six.expect_equal(whole);
  six.save_all(b_.path());
  World one(scratch_.path(), options(), world_of(1, 1));
  one.load_all(b_.path());
  one.expect_equal(whole);
  one.save_all(c_.path());
  World again(scratch_.path(), options(), world_of(1, 4));
  again.load_all(c_.path());
  again.save_all(d_.path());
  EXPECT_EQ(bucket_bytes(d_.path()), bucket_bytes(a_.path()));

  for (std::uint64_t n = 4; n <= 6; ++n) {
    whole.step(n);
    six.step(n);
    one.step(n);
  }
  six.expect_equal(whole);
  one.expect_equal(whole);
}

TEST_P(Reshard, boxes_of_tensor_parallel_ranks_are_put_together_and_cut_anew) {
  World whole(scratch_.path(), options(), world_of(1, 1));
  World boxes(scratch_.path(), options(), world_of(2, 2));
  for (std::uint64_t n = 1; n <= 2; ++n) {
    whole.step(n);
    boxes.step(n);
  }
  boxes.save_all(a_.path());
  for (const auto& [tensor, data] : {std::pair{1U, 1U}, {4U, 1U}, {3U, 2U}, {1U, 3U}}) {
    World other(scratch_.path(), options(), world_of(tensor, data));
    other.load_all(a_.path());
    other.expect_equal(whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Moments, Reshard, ::testing::Values("fp32", "bf16"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ReshardRefusal, names_the_parameter_and_touches_nothing) {
  TemporaryDirectory scratch, saved;
  const std::string options = "\"tile_elements\": 4096";
  // Rank 1 of 2 did not save a parameter's second half.
  std::vector<Cuts> cuts = world_of(1, 2);
  cuts[1][2].end -= 100;
  World holes(scratch.path(), options, cuts);
  holes.step(1);
  holes.save_all(saved.path());
  World one(scratch.path(), options, world_of(1, 1));
  one.step(1);
  one.step(2);
  const Everything before = everything(one.rank(0));
  Status status;
  EXPECT_EQ(load(one.rank(0), saved.path(), &status), MILLPOND_E_MISMATCH) << status.text();
  EXPECT_NE(std::string(status.field).find("mix"), std::string::npos) << status.text();
  EXPECT_EQ(status.wanted, 9U * 14 * 40);
  EXPECT_EQ(status.got, 9U * 14 * 40 - 100);
  EXPECT_EQ(everything(one.rank(0)), before);
  // A rank that has all of its part loads, and reads the files of one rank only.
  World two(scratch.path(), options, world_of(1, 2));
  EXPECT_EQ(load(two.rank(0), saved.path(), &status), MILLPOND_OK) << status.text();
  EXPECT_TRUE(two.job(0).log_has("1 store(s)"));
}

TEST(ReshardReads, only_the_blocks_that_a_rank_needs) {
  TemporaryDirectory scratch, saved;
  const std::string options = "\"tile_elements\": 4096";
  World one(scratch.path(), options, world_of(1, 1));
  one.step(1);
  one.save_all(saved.path());
  // Everything but the first block of each segment is damaged; rank 0 of 64 needs no more.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(saved.path())) {
    if (entry.path().filename() != "bucket00000.bin") continue;
    std::string bytes = file_bytes(entry.path());
    for (std::size_t at = bytes.size() / 3 - 4096; at < bytes.size() / 3; ++at) bytes[at] = 'x';
    write_file(entry.path(), bytes);
  }
  Status status;
  World many(scratch.path(), options, {cuts_of(0, 1, 64), cuts_of(63, 1, 64)});
  EXPECT_EQ(load(many.rank(0), saved.path(), &status), MILLPOND_OK) << status.text();
  World again(scratch.path(), options, world_of(1, 1));
  EXPECT_EQ(load(again.rank(0), saved.path(), &status), MILLPOND_E_CORRUPT) << status.text();
}

}  // namespace
}  // namespace millpond::tests
