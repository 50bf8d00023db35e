#include "plugin/io/engine.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "plugin/io/engine_state.h"

namespace millpond::plugin {
namespace {

// What a forked child or a stuck kernel keeps an engine from freeing stays reachable here.
std::atomic<void*> last_leaked{nullptr};

}  // namespace

Engine::Engine(std::unique_ptr<RawEngine> raw, std::chrono::milliseconds timeout)
    : state_(std::make_unique<State>(std::move(raw), timeout)) {}

Engine::~Engine() {
  State& state = *state_;
  if (!state.in_child()) {
    while (state.in_raw > state.overdue_in_raw) {
      state.expire();
      if (state.in_raw > state.overdue_in_raw) state.collect(state.next_deadline);
    }
    state.collect(Clock::now());
    if (state.in_raw == 0) return;
  }
  state.next_leaked = static_cast<State*>(last_leaked.exchange(&state));
  state_.release();  // NOLINT(bugprone-unused-return-value)
}

const char* Engine::name() const { return state_->raw->name(); }

std::string Engine::note() const { return state_->raw->note(); }

std::uint32_t Engine::depth() const { return state_->raw->depth(); }

void Engine::use_memory(std::byte* region, std::uint64_t bytes) {
  if (state_->in_raw == 0) state_->raw->use_memory(region, bytes);
}

void Engine::forget(int fd) { state_->raw->forget(fd); }

void Engine::submit(Transfer* transfer) {
  state_->add(transfer);
  state_->pump();
}

void Engine::submit(std::span<Transfer* const> batch) {
  for (Transfer* transfer : batch) state_->add(transfer);
  state_->pump();
}

std::size_t Engine::reap(std::span<Transfer*> completed, bool wait) {
  State& state = *state_;
  state.pump();
  state.collect(Clock::now());
  for (;;) {
    state.expire();
    state.pump();
    if (!wait || !state.finished.empty() || state.unreaped == 0 || completed.empty()) break;
    const Clock::time_point until = std::min(state.next_event(), Clock::now() + kLookAgain);
    if (state.in_raw > 0) {
      state.collect(until);
    } else {
      std::this_thread::sleep_until(until);
      state.look(until);
    }
  }
  return state.give(completed);
}

std::uint64_t Engine::in_flight() const { return state_->unreaped; }

std::uint64_t Engine::owned_bytes() const { return state_->owned; }

bool Engine::drain_owned(std::chrono::milliseconds timeout) {
  State& state = *state_;
  const Clock::time_point end = Clock::now() + timeout;
  do {
    state.collect(std::min(end, state.next_deadline));
    state.expire();
  } while (state.in_raw > 0 && Clock::now() < end);
  return state.in_raw == 0;
}

void Engine::reserve(std::size_t transfers) { state_->reserve(transfers); }

}  // namespace millpond::plugin
