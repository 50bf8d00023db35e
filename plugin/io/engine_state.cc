#include "plugin/io/engine_state.h"
#include "plugin/io/sizes.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace millpond::plugin {
namespace {

constexpr auto kFirstPause = std::chrono::microseconds(20);
constexpr auto kLongestPause = std::chrono::milliseconds(10);

bool page_aligned(const Transfer& transfer) {
  return (transfer.offset | transfer.bytes | reinterpret_cast<std::uintptr_t>(transfer.memory)) %
             kPage ==
         0;
}

bool ends_at(int fd, std::uint64_t offset) {
  struct stat info = {};
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
         static_cast<std::uint64_t>(info.st_size) <= offset;
}

}  // namespace

Engine::State::State(std::unique_ptr<RawEngine> raw_engine, std::chrono::milliseconds limit)
    : raw(std::move(raw_engine)), timeout(limit), completions(raw->depth()), maker(::getpid()) {
  reserve(raw->depth());
}

bool Engine::State::in_child() const { return maker != ::getpid(); }

void Engine::State::reserve(std::size_t transfers) {
  if (transfers <= slots) return;
  const std::size_t more = transfers - slots;
  blocks.reserve(blocks.size() + 1);
  block_sizes.reserve(block_sizes.size() + 1);
  blocks.push_back(std::make_unique<Slot[]>(more));
  block_sizes.push_back(more);
  for (std::size_t i = 0; i < more; ++i) unused.push(&blocks.back()[i]);
  slots = transfers;
}

void Engine::State::add(Transfer* transfer) {
  if (unused.empty()) reserve(slots * 2);
  Slot* slot = unused.pop();
  *slot = Slot();
  slot->user = transfer;
  slot->aligned = page_aligned(*transfer);
  ++unreaped;
  if (transfer->bytes == 0) {
    finish(slot, 0, 0);
  } else {
    waiting.push(slot);
  }
}

void Engine::State::start(Slot* slot, Clock::time_point now) {
  const Transfer& user = *slot->user;
  Attempt& attempt = slot->attempt;
  static_cast<Transfer&>(attempt) = user;
  attempt.slot = slot;
  attempt.offset += slot->position;
  attempt.memory += slot->position;
  attempt.bytes = std::min(user.bytes - slot->position, kMostAtOnce);
  attempt.error = 0;
  attempt.done = 0;
  if (!slot->timed) {
    slot->timed = true;
    slot->deadline = now + timeout;
    next_deadline = std::min(next_deadline, slot->deadline);
  }
  slot->in_raw = true;
  ++in_raw;
  raw->start(&attempt);
}

void Engine::State::look(Clock::time_point waited_until) {
  const Clock::time_point now = Clock::now();
  const Clock::duration absent = now - std::max(looked, std::min(waited_until, now));
  looked = now;
  if (absent < kLookAgain) return;
  next_deadline = Clock::time_point::max();
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    for (std::size_t i = 0; i < block_sizes[block]; ++i) {
      Slot& slot = blocks[block][i];
      if (!slot.timed || slot.overdue || slot.user == nullptr) continue;
      slot.deadline += absent;
      next_deadline = std::min(next_deadline, slot.deadline);
    }
  }
}

void Engine::State::pump() {
  look(looked);
  if (next_retry != Clock::time_point::max()) {
    const Clock::time_point now = Clock::now();
    next_retry = Clock::time_point::max();
    for (SlotList due = retrying.take(); !due.empty();) {
      Slot* slot = due.pop();
      if (slot->deadline <= now) {
        finish(slot, slot->last_error, slot->position);
      } else if (slot->retry_at <= now) {
        waiting.push(slot);
      } else {
        next_retry = std::min(next_retry, slot->retry_at);
        retrying.push(slot);
      }
    }
  }
  if (waiting.empty() || in_raw >= raw->depth()) return;
  const Clock::time_point now = Clock::now();
  while (!waiting.empty() && in_raw < raw->depth()) start(waiting.pop(), now);
  raw->flush_submissions();
}

void Engine::State::collect(Clock::time_point deadline) {
  if (in_raw == 0) return;
  const std::size_t count = raw->complete(completions, deadline);
  look(deadline);
  if (count == 0) return;
  const Clock::time_point now = Clock::now();
  for (std::size_t i = 0; i < count; ++i) {
    answered(static_cast<Attempt*>(completions[i])->slot, now);
  }
}

void Engine::State::answered(Slot* slot, Clock::time_point now) {
  --in_raw;
  slot->in_raw = false;
  const Transfer& attempt = slot->attempt;
  if (slot->overdue) {  // its user had ETIMEDOUT already, and is not touched any more
    --overdue_in_raw;
    owned -= attempt.bytes;
    if (slot->reaped) release(slot);
    return;
  }
  if (attempt.error == EINTR || attempt.error == EAGAIN) return retry(slot, attempt.error, now);
  if (attempt.error != 0) return finish(slot, attempt.error, slot->position);
  if (attempt.done == 0) return finish(slot, EIO, slot->position);
  if (attempt.done < attempt.bytes) return came_short(slot, attempt.done, now);
  slot->position += attempt.bytes;
  slot->timed = false;
  slot->pause = {};
  if (slot->position == slot->user->bytes) return finish(slot, 0, slot->position);
  waiting.push(slot);
}

// O_DIRECT refuses an odd offset: after an odd count the last page is moved once more.
void Engine::State::came_short(Slot* slot, std::uint64_t moved, Clock::time_point now) {
  const Transfer& attempt = slot->attempt;
  if (attempt.kind == Transfer::Kind::kRead && ends_at(attempt.fd, attempt.offset + moved)) {
    return finish(slot, EIO, slot->position + moved);
  }
  const std::uint64_t progress = slot->aligned ? moved / kPage * kPage : moved;
  if (progress == 0 || now >= slot->deadline) return retry(slot, EIO, now);
  slot->position += progress;
  waiting.push(slot);
}

void Engine::State::retry(Slot* slot, int error, Clock::time_point now) {
  slot->last_error = error;
  if (now >= slot->deadline) return finish(slot, error, slot->position);
  slot->pause = std::clamp<Clock::duration>(slot->pause * 2, kFirstPause, kLongestPause);
  slot->retry_at = std::min(now + slot->pause, slot->deadline);
  next_retry = std::min(next_retry, slot->retry_at);
  retrying.push(slot);
}

void Engine::State::finish(Slot* slot, int error, std::uint64_t done) {
  slot->user->error = error;
  slot->user->done = done;
  finished.push(slot);
}

void Engine::State::release(Slot* slot) { unused.push(slot); }

void Engine::State::expire() {
  // A device that answers nothing at all: what waits for room behind it would wait for ever.
  if (overdue_in_raw == raw->depth()) {
    while (!waiting.empty()) {
      Slot* slot = waiting.pop();
      finish(slot, ETIMEDOUT, slot->position);
    }
  }
  if (next_deadline == Clock::time_point::max()) return;
  const Clock::time_point now = Clock::now();
  if (now < next_deadline) return;
  next_deadline = Clock::time_point::max();
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    for (std::size_t i = 0; i < block_sizes[block]; ++i) {
      Slot* slot = &blocks[block][i];
      if (!slot->in_raw || slot->overdue) continue;
      if (slot->deadline > now) {
        next_deadline = std::min(next_deadline, slot->deadline);
        continue;
      }
      slot->overdue = true;
      ++overdue_in_raw;
      owned += slot->attempt.bytes;
      finish(slot, ETIMEDOUT, slot->position);
    }
  }
}

Clock::time_point Engine::State::next_event() const { return std::min(next_deadline, next_retry); }

std::size_t Engine::State::give(std::span<Transfer*> completed) {
  std::size_t count = 0;
  while (count < completed.size() && !finished.empty()) {
    Slot* slot = finished.pop();
    completed[count++] = slot->user;
    slot->user = nullptr;
    slot->reaped = true;
    --unreaped;
    if (!slot->in_raw) release(slot);
  }
  return count;
}

}  // namespace millpond::plugin
