#include "host_adapters/sample/evaluation.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <numbers>

#include "millpond/error.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace millpond::sample {
namespace {

constexpr millpond_stream kHost = {MILLPOND_DEVICE_CPU, 0, 0};

}  // namespace

double evaluate(Model& model, const Text& text, const std::vector<std::size_t>& places,
                Collective& ranks) {
  constexpr std::size_t kBatch = 2048;
  // Each rank has batches of its own; their sums are added in one order, whoever made them.
  const std::size_t batches = (places.size() + kBatch - 1) / kBatch;
  const std::size_t each = (batches + ranks.size() - 1) / ranks.size();
  std::vector<double> sums(each * ranks.size());
  const std::size_t begin = ranks.rank() * each;
  Batch batch;
  for (std::size_t b = begin; b < std::min(batches, begin + each); ++b) {
    const std::size_t count = std::min(kBatch, places.size() - b * kBatch);
    text.gather(places.data() + b * kBatch, count, &batch);
    sums[b] = model.loss(batch.contexts, batch.targets);
  }
  ranks.all_gather(sums.data() + begin, sums.data(), each * sizeof(double), kHost);
  double nats = 0.0;
  for (const double sum : sums) nats += sum;
  return nats / static_cast<double>(places.size()) / std::numbers::ln2;
}

std::string digest(const Model& model, Collective& ranks) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  if (!state || XXH3_128bits_reset(state.get()) == XXH_ERROR) throw std::bad_alloc();
  for (std::size_t p = 0; p < model.layout().parameters().size(); ++p) {
    const std::vector<Bfloat> values = model.download(p);
    XXH3_128bits_update(state.get(), values.data(), values.size() * sizeof(Bfloat));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  std::vector<XXH128_hash_t> all(ranks.size());
  ranks.all_gather(&hash, all.data(), sizeof(hash), kHost);
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    if (XXH128_isEqual(all[rank], all[0]) != 0) continue;
    throw Error(MILLPOND_E_MISMATCH, "compare the ranks' models",
                "rank " + std::to_string(rank) + " has other parameters than rank 0");
  }
  char text[40];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace millpond::sample
