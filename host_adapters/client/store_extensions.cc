// The store's calls that go through extension tables: checkpoint/1, report/1, state/1.
#include "host_adapters/client/runtime_core.h"
#include "millpond/client/store.h"

namespace millpond::client {

millpond_save_progress Store::poll_save() const {
  millpond_store* store = live();
  millpond_save_progress progress = {};
  progress.header = {sizeof(progress), MILLPOND_TYPE_SAVE_PROGRESS};
  core_->call([&](millpond_status* status) {
    return core_->plugin.checkpoint().poll(store, &progress, status);
  });
  return progress;
}

void Store::wait_save() {
  core_->call([store = live(), this](millpond_status* status) {
    return core_->plugin.checkpoint().wait(store, status);
  });
}

void Store::cancel_save() {
  core_->call([store = live(), this](millpond_status* status) {
    return core_->plugin.checkpoint().cancel(store, status);
  });
}

millpond_step_figures Store::last_step() const {
  millpond_store* store = live();
  millpond_step_figures figures = {};
  figures.header = {sizeof(figures), MILLPOND_TYPE_STEP_FIGURES};
  core_->call([&](millpond_status* status) {
    return core_->plugin.report().last_step(store, &figures, status);
  });
  return figures;
}

millpond_plan_figures Store::plan() const {
  millpond_store* store = live();
  millpond_plan_figures figures = {};
  figures.header = {sizeof(figures), MILLPOND_TYPE_PLAN_FIGURES};
  core_->call([&](millpond_status* status) {
    return core_->plugin.report().plan(store, &figures, status);
  });
  return figures;
}

void Store::read_state(std::uint64_t shard_id, Segment segment, std::uint64_t begin,
                       std::span<float> values) const {
  core_->call([&, store = live()](millpond_status* status) {
    return core_->plugin.state().read(store, shard_id, static_cast<std::uint32_t>(segment), begin,
                                      values.size(), values.data(), status);
  });
}

void Store::write_state(std::uint64_t shard_id, Segment segment, std::uint64_t begin,
                        std::span<const float> values) {
  core_->call([&, store = live()](millpond_status* status) {
    return core_->plugin.state().write(store, shard_id, static_cast<std::uint32_t>(segment), begin,
                                       values.size(), values.data(), status);
  });
}

std::uint64_t Store::shard_step(std::uint64_t shard_id) const {
  std::uint64_t step = 0;
  core_->call([&, store = live()](millpond_status* status) {
    return core_->plugin.state().get_step(store, shard_id, &step, status);
  });
  return step;
}

void Store::set_shard_step(std::uint64_t shard_id, std::uint64_t step) {
  core_->call([&, store = live()](millpond_status* status) {
    return core_->plugin.state().set_step(store, shard_id, step, status);
  });
}

}  // namespace millpond::client
