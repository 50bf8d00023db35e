// Work over tiles that tells the host, tile by tile, how far it is, and lets it cancel.
#ifndef MILLPOND_PLUGIN_STORE_COUNTED_WORK_H_
#define MILLPOND_PLUGIN_STORE_COUNTED_WORK_H_

#include <cstdint>

#include "plugin/core/host.h"
#include "plugin/pipeline/pipeline.h"

namespace millpond::plugin {

// Hands every call on to `work`. Throws from start() what Host::progress throws when the host
// cancels. All references outlive it; one thread.
class CountedWork final : public TileWork {
 public:
  // operation: "bind", "load". done: bytes of tiles begun until now, counted on. total: bytes.
  CountedWork(TileWork& work, Host& host, const char* operation, std::uint64_t* done,
              std::uint64_t total)
      : work_(work), host_(host), operation_(operation), done_(done), total_(total) {}

  std::uint32_t capacity() const override { return work_.capacity(); }
  void start(TileView* tile) override {
    host_.progress(operation_, *done_, total_);
    work_.start(tile);
    *done_ += tile->tile->total_bytes;
  }
  TileView* finished(bool wait) override { return work_.finished(wait); }

 private:
  TileWork& work_;
  Host& host_;
  const char* operation_;
  std::uint64_t* done_;
  std::uint64_t total_;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_STORE_COUNTED_WORK_H_
