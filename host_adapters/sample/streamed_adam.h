// AdamW with its state streamed through files: what a host writes to use Millpond.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_STREAMED_ADAM_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_STREAMED_ADAM_H_

#include <functional>
#include <string>
#include <string_view>

#include "host_adapters/sample/model.h"
#include "host_adapters/sample/optimizer.h"
#include "millpond/client/plugin.h"

namespace millpond::sample {

class StreamedAdam : public Optimizer {
 public:
  using LogLine = std::function<void(std::uint32_t level, std::string_view line)>;

  // Mains are the model's parameters widened, read by the bind. The model must outlive the
  // optimizer.
  StreamedAdam(client::Plugin plugin, Model& model, const Hyperparameters& hyper,
               const std::string& options_json, LogLine log);

  StepCost step(const StepInput& input) override;
  void read(std::size_t parameter, Part part, std::size_t begin, std::span<float> values) override;
  std::uint64_t resident_bytes() override;
  std::string description() override;
  void save(const std::filesystem::path& path) override;
  void load(const std::filesystem::path& path) override;

  const client::Plan& plan() const { return plan_; }

 private:
  client::Binding binding() const;

  client::Plugin plugin_;
  Model& model_;
  Hyperparameters hyper_;
  client::Runtime runtime_;
  client::Store store_;
  client::Plan plan_;
};

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_STREAMED_ADAM_H_
