// state/1
#include "plugin/exports/boundary.h"
#include "plugin/exports/entry.h"
#include "plugin/exports/extensions.h"

namespace millpond::plugin {
namespace {

std::int32_t read(millpond_store* store, std::uint64_t shard_id, std::uint32_t segment,
                  std::uint64_t begin, std::uint64_t count, float* values,
                  millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    StoreEntry entry(store, "read state", flags);
    entry->read_state(shard_id, segment, begin, count, values);
  });
}

std::int32_t write(millpond_store* store, std::uint64_t shard_id, std::uint32_t segment,
                   std::uint64_t begin, std::uint64_t count, const float* values,
                   millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    StoreEntry entry(store, "write state", flags);
    entry->write_state(shard_id, segment, begin, count, values);
  });
}

std::int32_t get_step(millpond_store* store, std::uint64_t shard_id, std::uint64_t* step,
                      millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    StoreEntry entry(store, "get step", flags);
    if (step == nullptr) {
      throw Error(MILLPOND_E_ARGUMENT, "get step", "the pointer is NULL").field("step");
    }
    *step = entry->get_step(shard_id);
  });
}

std::int32_t set_step(millpond_store* store, std::uint64_t shard_id, std::uint64_t step,
                      millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    StoreEntry entry(store, "set step", flags);
    entry->set_step(shard_id, step);
  });
}

constexpr millpond_ext_state kState{
    {sizeof(millpond_ext_state), MILLPOND_TYPE_EXT_STATE}, read, write, get_step, set_step};

}  // namespace

const millpond_ext_state* state_extension() { return &kState; }

}  // namespace millpond::plugin
