// The functions of the version 1 table: arguments in, one call of the runtime or store, status out.
#include <array>
#include <memory>
#include <utility>

#include "plugin/exports/boundary.h"
#include "plugin/exports/entry.h"
#include "plugin/exports/extensions.h"
#include "plugin/exports/read_struct.h"
#include "plugin/exports/table.h"
#include "plugin/guard/wire_reader.h"

namespace millpond::plugin {
namespace {

constexpr std::uint64_t kLongestOptions = 1ull << 20;
constexpr std::uint64_t kLongestUid = 4096;  // the runtime says what a name may be

template <std::uint32_t kMinor>
std::int32_t runtime_create(const millpond_host_api* host, millpond_str options_json,
                            millpond_runtime** runtime, millpond_status* status) {
  if (runtime != nullptr) *runtime = nullptr;
  return guarded(status, [&] {
    if (runtime == nullptr) {
      throw Error(MILLPOND_E_ARGUMENT, "runtime_create", "the pointer is NULL").field("runtime");
    }
    const millpond_host_api api = read_struct(host);
    Options options =
        parse_options(read_str(options_json, "options_json", kLongestOptions), kMinor);
    auto created = std::make_unique<Runtime>(api, std::move(options), kMinor);
    { const Call call(*created, "runtime_create"); }  // delivers what was logged
    *runtime = to_handle(created.release());
  });
}

std::int32_t runtime_destroy(millpond_runtime* handle, millpond_status* status) {
  return guarded(status, [&] {
    if (handle == nullptr) return;
    Runtime& runtime = runtime_of(handle, "runtime_destroy");
    std::uint64_t leaked = 0;
    {
      const Call call(runtime, "runtime_destroy");
      leaked = runtime.shut_down();
    }
    delete &runtime;
    if (leaked == 0) return;
    throw Error(MILLPOND_E_LEAKED, "runtime_destroy",
                "the kernel still owns buffers of transfers that did not end in time; they stay "
                "until the process ends")
        .want(0, leaked)
        .remedy("Look at the drive: the kernel's log says what it waits for");
  });
}

std::int32_t create(millpond_runtime* runtime, millpond_str uid, millpond_store** store,
                    millpond_status* status) {
  if (store != nullptr) *store = nullptr;
  return guarded(status, [&](std::uint32_t& flags) {
    RuntimeEntry entry(runtime, "create", flags);
    if (store == nullptr) {
      throw Error(MILLPOND_E_ARGUMENT, "create", "the pointer is NULL").field("store");
    }
    *store = to_handle(&entry->create_store(read_str(uid, "uid", kLongestUid)));
  });
}

std::int32_t destroy(millpond_store* handle, millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    if (handle == nullptr) return;
    Store& store = store_of(handle, "destroy");
    RuntimeEntry entry(to_handle(&store.runtime()), "destroy", flags);
    entry->destroy_store(&store);
  });
}

// Shards of the profile: as many pointers the host must have given. Known before the first of them
// is read, so that a wrong count is refused instead of read past the end of the host's array.
std::uint64_t shards_of_profile(const millpond_bind_args& args) {
  constexpr std::uint32_t kShards = 11;  // HostProfile.shards in handshake.proto
  if (args.profile == nullptr && args.profile_bytes != 0) {
    throw Error(MILLPOND_E_ARGUMENT, "bind", "the pointer is NULL").field("bind_args.profile");
  }
  WireReader profile("HostProfile", args.profile, args.profile_bytes);
  std::uint64_t shards = 0;
  while (profile.next()) {
    if (profile.tag() == kShards) ++shards;
  }
  return shards;
}

std::int32_t bind(millpond_store* store, const millpond_bind_args* args, millpond_str* report,
                  millpond_status* status) {
  if (report != nullptr) *report = {};
  return guarded(status, [&](std::uint32_t& flags) {
    StoreEntry entry(store, "bind", flags);
    const auto tell = [&] {
      if (report == nullptr || entry->report().empty()) return;
      *report = {entry->report().data(), entry->report().size()};
    };
    try {
      millpond_bind_args read;
      std::vector<millpond_shard_pointers> shards;
      try {
        read = read_struct(args);
        read_span(read.shards, "bind_args.shards", shards_of_profile(read), shards);
      } catch (...) {
        entry->refuse_bind();
        throw;
      }
      entry->bind(read, shards);
    } catch (...) {
      tell();
      throw;
    }
    tell();
  });
}

std::int32_t unbind(millpond_store* store, millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    StoreEntry entry(store, "unbind", flags);
    entry->unbind();
  });
}

std::int32_t step(millpond_store* store, const millpond_step_args* args, millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    StoreEntry entry(store, "step", flags);
    try {
      const millpond_step_args read = read_struct(args);
      entry->require_ready("step");
      std::vector<millpond_group_step>& groups = entry->step_groups();
      read_span(read.groups, "step_args.groups", entry->groups(), groups);
      if (entry->step(read, groups)) flags |= MILLPOND_STATUS_SKIPPED;
    } catch (const Error& error) {
      entry->fail(error);
      throw;
    } catch (const std::exception& error) {
      entry->fail(Error(MILLPOND_E_INTERNAL, "step", error.what()));
      throw;
    }
  });
}

std::int32_t agree(millpond_runtime* runtime, millpond_group group, millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    RuntimeEntry entry(runtime, "agree", flags);
    check_group(group);
    entry->agree(group);
  });
}

std::int32_t refresh_main(millpond_store* store, const millpond_refresh_args* args,
                          millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    StoreEntry entry(store, "refresh_main", flags);
    entry->refresh_main(read_struct(args));
  });
}

std::int32_t save_to(millpond_store* store, const millpond_io_args* args, millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    StoreEntry entry(store, "save_to", flags);
    entry->save_to(read_struct(args));
  });
}

std::int32_t load_from(millpond_store* store, const millpond_io_args* args,
                       millpond_status* status) {
  return guarded(status, [&](std::uint32_t& flags) {
    StoreEntry entry(store, "load_from", flags);
    const millpond_io_args read = read_struct(args);
    try {
      entry->load_from(read);
    } catch (const Error& error) {
      if ((read.flags & MILLPOND_IO_STAGE) != 0) entry->runtime().note_load_failure(error);
      throw;
    }
  });
}

const void* get_extension(millpond_runtime* /*runtime*/, millpond_str name) {
  if (name.ptr == nullptr) return nullptr;
  return find_extension({name.ptr, name.len});
}

template <std::uint32_t kMinor>
constexpr millpond_table_v1 kTable{{sizeof(millpond_table_v1), MILLPOND_TYPE_TABLE_V1},
                                   kMinor,
                                   0,
                                   runtime_create<kMinor>,
                                   runtime_destroy,
                                   create,
                                   destroy,
                                   bind,
                                   unbind,
                                   step,
                                   agree,
                                   refresh_main,
                                   save_to,
                                   load_from,
                                   get_extension};

template <std::uint32_t... kMinors>
const millpond_table_v1* pick(std::uint32_t minor,
                              std::integer_sequence<std::uint32_t, kMinors...> /*minors*/) {
  static constexpr std::array<const millpond_table_v1*, sizeof...(kMinors)> kTables{
      &kTable<kMinors>...};
  return kTables[std::min<std::size_t>(minor, kTables.size() - 1)];
}

}  // namespace

const millpond_table_v1* table_v1(std::uint32_t minor) {
  return pick(minor, std::make_integer_sequence<std::uint32_t, MILLPOND_ABI_MINOR + 1>());
}

}  // namespace millpond::plugin
