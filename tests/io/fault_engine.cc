#include "tests/io/fault_engine.h"

#include <algorithm>
#include <cerrno>
#include <thread>

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kPage = 4096;

bool aligned(const Transfer& attempt) {
  return (attempt.offset | attempt.bytes | reinterpret_cast<std::uintptr_t>(attempt.memory)) %
             kPage ==
         0;
}

}  // namespace

FaultEngine::FaultEngine(std::unique_ptr<RawEngine> inner)
    : inner_(std::move(inner)), entries_(inner_->depth()), answers_(inner_->depth()) {}

void FaultEngine::set(const Fault& fault) {
  fault_ = fault;
  attempts_ = 0;
  met_ = 0;
}

void FaultEngine::let_go() {
  for (Entry& entry : entries_) {
    if (entry.used && entry.kind == Fault::Kind::kNever) {
      entry.kind = Fault::Kind::kDelay;
      entry.due = Clock::now();
    }
  }
}

bool FaultEngine::meets(const Transfer& attempt) {
  if (fault_.kind == Fault::Kind::kNone || (fault_.only && *fault_.only != attempt.kind)) {
    return false;
  }
  ++attempts_;
  if (attempts_ < fault_.attempt || (attempts_ > fault_.attempt && !fault_.for_ever)) return false;
  if (fault_.kind == Fault::Kind::kUnaligned && aligned(attempt)) {
    return false;
  }
  ++met_;
  return true;
}

void FaultEngine::start(Transfer* attempt) {
  Entry& entry =
      *std::find_if(entries_.begin(), entries_.end(), [](const Entry& e) { return !e.used; });
  entry = Entry();
  entry.used = true;
  entry.given = attempt;
  entry.moved = *attempt;
  entry.told = attempt->bytes;
  entry.moved.tag = static_cast<std::uint64_t>(&entry - entries_.data());
  ++out_;
  out_bytes_ += attempt->bytes;
  if (meets(*attempt)) {
    entry.kind = fault_.kind;
    entry.due = Clock::now() + fault_.delay;
    const std::uint64_t cut = std::min(attempt->bytes, fault_.bytes);
    if (entry.kind == Fault::Kind::kShortBy) entry.told -= std::min(cut, attempt->bytes - 1);
    if (entry.kind == Fault::Kind::kShortTo) entry.told = cut;
    entry.moved.bytes = aligned(*attempt) ? entry.told / kPage * kPage : entry.told;
    const bool refused = entry.kind == Fault::Kind::kUnaligned;
    if (refused || entry.kind == Fault::Kind::kError || entry.moved.bytes == 0) {
      entry.moved.error = refused ? EINVAL : entry.kind == Fault::Kind::kError ? fault_.error : 0;
      if (entry.moved.error != 0) entry.told = 0;
      entry.moved.done = entry.moved.bytes;
      entry.answered = true;
      return;
    }
  }
  ++inner_in_flight_;
  inner_->start(&entry.moved);
}

std::size_t FaultEngine::give(std::span<Transfer*> completed) {
  std::size_t count = 0;
  const Clock::time_point now = Clock::now();
  for (Entry& entry : entries_) {
    if (count == completed.size()) break;
    if (!entry.used || !entry.answered || entry.kind == Fault::Kind::kNever) continue;
    if (entry.kind == Fault::Kind::kDelay && entry.due > now) continue;
    entry.given->error = entry.moved.error;
    const bool whole = entry.moved.done == entry.moved.bytes;
    entry.given->done = whole ? entry.told : std::min(entry.moved.done, entry.told);
    completed[count++] = entry.given;
    --out_;
    out_bytes_ -= entry.given->bytes;
    entry.used = false;
  }
  return count;
}

FaultEngine::Clock::time_point FaultEngine::next_due() const {
  Clock::time_point due = Clock::time_point::max();
  for (const Entry& entry : entries_) {
    if (entry.used && entry.answered && entry.kind == Fault::Kind::kDelay) {
      due = std::min(due, entry.due);
    }
  }
  return due;
}

std::size_t FaultEngine::complete(std::span<Transfer*> completed, Clock::time_point deadline) {
  for (;;) {
    if (const std::size_t count = give(completed); count > 0 || completed.empty()) return count;
    const Clock::time_point until = std::min(deadline, next_due());
    if (inner_in_flight_ > 0) {
      const std::size_t count = inner_->complete(answers_, until);
      inner_in_flight_ -= count;
      for (std::size_t i = 0; i < count; ++i) entries_[answers_[i]->tag].answered = true;
    } else {
      std::this_thread::sleep_until(until);
    }
    if (Clock::now() >= deadline) return give(completed);
  }
}

}  // namespace millpond::plugin
