// AdamW with its state streamed through files: what a host writes to use Millpond. A rank has one
// runtime, and in it a store for each section that it owns part of.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_STREAMED_ADAM_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_STREAMED_ADAM_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "host_adapters/sample/collective.h"
#include "host_adapters/sample/model.h"
#include "host_adapters/sample/optimizer.h"
#include "millpond/client/plugin.h"

namespace millpond::sample {

class StreamedAdam : public Optimizer {
 public:
  using LogLine = std::function<void(std::uint32_t level, std::string_view line)>;

  // Mains are the rank's part of the model widened, read by the bind. Model and collective must
  // outlive the optimizer. All calls are made by all ranks.
  StreamedAdam(client::Plugin plugin, Model& model, Collective& ranks, const Hyperparameters& hyper,
               const std::string& options_json, LogLine log);

  StepCost step(const StepInput& input) override;
  void read(std::size_t piece, Part part, std::size_t begin, std::span<float> values) override;
  std::uint64_t resident_bytes() override;
  std::string description() override;
  void save(const std::filesystem::path& path) override;
  void load(const std::filesystem::path& path) override;

 private:
  client::Binding binding(const std::vector<Piece>& pieces) const;
  // Does `work` on every store, then `agreement` whatever became of it: the other ranks wait there.
  void on_all_ranks(const std::function<void(client::Store&)>& work,
                    const std::function<void()>& agreement);

  client::Plugin plugin_;
  Model& model_;
  Collective& ranks_;
  Hyperparameters hyper_;
  millpond_group group_;
  client::Runtime runtime_;
  std::vector<client::Store> stores_;
  std::vector<std::size_t> first_piece_;  // of each store
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_STREAMED_ADAM_H_
