// The places of the host tier and the transfers between them and the files. Knows where tiles are,
// not why they move. One thread.
#ifndef MILLPOND_PLUGIN_PIPELINE_MOVER_H_
#define MILLPOND_PLUGIN_PIPELINE_MOVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "millpond/error.hpp"
#include "plugin/io/engine.h"
#include "plugin/pipeline/fixed_queue.h"
#include "plugin/pipeline/state.h"

namespace millpond::plugin {

// Room for one tile. From take() until release() it belongs to one tile of one state.
struct Place {
  std::byte* memory = nullptr;
  StateCore* state = nullptr;
  std::uint32_t tile = 0;
  std::uint32_t pending = 0;  // transfers in flight
  bool reading = false;
  bool stay = false;  // after a flush the tile remains, clean
  bool lost = false;  // a transfer timed out: the kernel may still use the memory
  bool failed = false;
  bool untouched = false;  // as the kernel gave it: zero
  // A save reads the memory and does not come to an end: not used again before it has.
  std::shared_ptr<Snapshot> pinned_by;
  TileView view;
};

class Mover {
 public:
  // patience: how long release() waits for a save that reads the tile's memory.
  Mover(Engine& engine, std::chrono::milliseconds patience)
      : engine_(engine), patience_(patience) {}

  // Makes places of the region; all are free. Nothing may be in flight. `transfers`: the most that
  // a tile needs. `untouched`: the region was mapped just now. Not in a visit.
  void configure(std::byte* region, std::uint64_t place_bytes, std::uint32_t places,
                 std::uint32_t transfers, bool untouched);

  bool has_free() const { return !free_.empty(); }
  Place& place(std::uint32_t index) { return places_[index]; }

  // A free place for the tile: resident, with whatever bytes were there.
  void take(StateCore& state, std::uint32_t tile);
  // Frees the place of a resident tile, when no save reads it any more. Its unwritten contents are
  // gone.
  void release(StateCore& state, std::uint32_t tile);
  // Takes a place and fetches what exists of the tile. It comes out of landed().
  void fetch(StateCore& state, std::uint32_t tile);
  // Writes what exists of a resident tile, whose sums are made; then the place is freed unless
  // `stay`.
  void flush(StateCore& state, std::uint32_t tile, bool stay);
  // Takes up finished transfers; wait: at least one if any is in flight. True when there were some.
  // A failed flush is kept in its state's failure, a failed fetch in fetch_error().
  bool reap(bool wait);
  void settle();  // until nothing is in flight
  // Whether a save still reads the memory of a resident tile; and waiting until it does not. Throws
  // Error(E_TIMEOUT) where the save does not come on for the patience.
  bool pinned(StateCore& state, std::uint32_t tile);
  void wait_unpinned(StateCore& state, std::uint32_t tile);
  // Tiles that the state's save does not read any more; and waiting, where it reads others, until
  // these are more than `seen`. `tile`: one of the others, for the error.
  static std::uint64_t unpinned(const StateCore& state);
  void wait_any_unpinned(StateCore& state, std::uint64_t seen, std::uint32_t tile);
  bool holds_pinned() const;  // of released places: their memory must stay mapped
  // Places that timed-out transfers held become free again once the kernel owns nothing.
  void recover_lost();

  FixedQueue<std::uint32_t>& landed() { return landed_; }
  std::optional<Error>& fetch_error() { return fetch_error_; }

  std::uint32_t fetching() const { return fetching_; }  // tiles
  std::uint32_t flushing() const { return flushing_; }
  bool in_flight() const { return fetching_ + flushing_ != 0; }
  std::uint32_t lost() const { return static_cast<std::uint32_t>(lost_.size()); }
  std::uint64_t bytes_read() const { return bytes_read_; }  // submitted since the beginning
  std::uint64_t bytes_written() const { return bytes_written_; }

  // Transfers that a tile of this plan needs at most.
  static std::uint32_t transfers_of(const Plan& plan);

 private:
  static Error save_hangs(const StateCore& state, std::uint32_t tile);
  void submit(Place& place, bool reading);
  void take_up(Transfer& transfer);
  void fail(const Place& place, const Transfer& transfer);
  void finish(Place& place);

  Engine& engine_;
  std::chrono::milliseconds patience_;
  std::vector<Place> places_;
  std::vector<Transfer> transfers_;  // by place
  std::vector<Transfer*> batch_;     // of one tile, handed to the kernel together
  std::uint32_t transfers_per_place_ = 0;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> lost_;
  FixedQueue<std::uint32_t> landed_;
  std::optional<Error> fetch_error_;
  std::uint32_t fetching_ = 0;
  std::uint32_t flushing_ = 0;
  std::uint64_t bytes_read_ = 0;
  std::uint64_t bytes_written_ = 0;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PIPELINE_MOVER_H_
