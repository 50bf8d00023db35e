// files/1: requests to plugin/files. millpond/files.h has the keys.
#include <optional>
#include <string>

#include "millpond/error.hpp"
#include "plugin/exports/boundary.h"
#include "plugin/exports/entry.h"
#include "plugin/exports/extensions.h"
#include "plugin/exports/json_request.h"
#include "plugin/files/difference.h"
#include "plugin/files/inspect.h"
#include "plugin/files/reference_export.h"
#include "plugin/files/reference_import.h"
#include "plugin/files/reshard.h"
#include "plugin/files/verify.h"
#include "plugin/io/posix_file_system.h"

namespace millpond::plugin {
namespace {

std::string required(const JsonRequest& request, const char* key, const char* operation) {
  std::string value = request.text(key, "");
  if (!value.empty()) return value;
  throw Error(MILLPOND_E_ARGUMENT, operation, "the key is missing or empty")
      .field(std::string("request.") + key);
}

// Runs `body(work)` with the sink as its answer and, where there is a runtime, the host's progress.
template <class Body>
std::int32_t do_files_work(millpond_runtime* runtime, millpond_sink_fn sink, void* context,
                           millpond_status* status, const char* operation, Body body) {
  return guarded(status, [&](std::uint32_t& flags) {
    if (sink == nullptr) {
      throw Error(MILLPOND_E_ARGUMENT, operation, "the pointer is NULL").field("sink");
    }
    std::optional<RuntimeEntry> entry;
    FilesWork work;
    work.emit = [&](std::string_view piece) { sink(context, {piece.data(), piece.size()}); };
    if (runtime != nullptr) {
      entry.emplace(runtime, operation, flags);
      work.beat = [&](std::uint64_t done, std::uint64_t total) {
        (*entry)->host().progress("files", done, total);
      };
    }
    body(work);
  });
}

std::int32_t inspect(millpond_runtime* runtime, millpond_str text, millpond_sink_fn sink,
                     void* context, millpond_status* status) {
  constexpr const char* kName = "inspect";
  return do_files_work(runtime, sink, context, status, kName, [&](const FilesWork& work) {
    const JsonRequest request(text, kName, {"path", "save_id"});
    const auto fs = open_file_system(required(request, "path", kName), false);
    inspect_save(*fs, request.text("save_id", ""), work);
  });
}

std::int32_t verify(millpond_runtime* runtime, millpond_str text, millpond_sink_fn sink,
                    void* context, millpond_status* status) {
  constexpr const char* kName = "verify";
  return do_files_work(runtime, sink, context, status, kName, [&](const FilesWork& work) {
    const JsonRequest request(text, kName, {"path", "save_id"});
    const auto fs = open_file_system(required(request, "path", kName), false);
    verify_save(*fs, request.text("save_id", ""), work);
  });
}

std::int32_t reshard(millpond_runtime* runtime, millpond_str text, millpond_sink_fn sink,
                     void* context, millpond_status* status) {
  constexpr const char* kName = "reshard";
  return do_files_work(runtime, sink, context, status, kName, [&](const FilesWork& work) {
    const JsonRequest request(text, kName, {"path", "save_id", "to", "world_size"});
    const auto from = open_file_system(required(request, "path", kName), false);
    const auto world_size =
        static_cast<std::uint32_t>(request.integer("world_size", 0, 1, 100'000));
    if (world_size == 0) required(request, "world_size", kName);
    const auto to = open_file_system(required(request, "to", kName), true);
    reshard_save(*from, request.text("save_id", ""), *to, world_size, work);
  });
}

std::int32_t import_(millpond_runtime* runtime, millpond_str text, millpond_sink_fn sink,
                     void* context, millpond_status* status) {
  constexpr const char* kName = "import";
  return do_files_work(runtime, sink, context, status, kName, [&](const FilesWork& work) {
    const JsonRequest request(text, kName, {"path", "layout", "to"});
    const auto from = open_file_system(required(request, "path", kName), false);
    const std::string layout = required(request, "layout", kName);
    const auto to = open_file_system(required(request, "to", kName), true);
    import_reference(*from, layout, *to, work);
  });
}

std::int32_t export_(millpond_runtime* runtime, millpond_str text, millpond_sink_fn sink,
                     void* context, millpond_status* status) {
  constexpr const char* kName = "export";
  return do_files_work(runtime, sink, context, status, kName, [&](const FilesWork& work) {
    const JsonRequest request(text, kName, {"path", "save_id", "layout", "to"});
    const auto from = open_file_system(required(request, "path", kName), false);
    const std::string layout = required(request, "layout", kName);
    const auto to = open_file_system(required(request, "to", kName), true);
    export_reference(*from, request.text("save_id", ""), layout, *to, work);
  });
}

std::int32_t diff(millpond_runtime* runtime, millpond_str text, millpond_sink_fn sink,
                  void* context, millpond_status* status) {
  constexpr const char* kName = "diff";
  return do_files_work(runtime, sink, context, status, kName, [&](const FilesWork& work) {
    const JsonRequest request(text, kName, {"path", "save_id", "other", "other_save_id"});
    const auto a = open_file_system(required(request, "path", kName), false);
    const auto b = open_file_system(required(request, "other", kName), false);
    diff_saves(*a, request.text("save_id", ""), *b, request.text("other_save_id", ""), work);
  });
}

constexpr millpond_ext_files kFiles{{sizeof(millpond_ext_files), MILLPOND_TYPE_EXT_FILES},
                                    inspect,
                                    verify,
                                    reshard,
                                    import_,
                                    export_,
                                    diff};

}  // namespace

const millpond_ext_files* files_extension() { return &kFiles; }

const void* find_extension(std::string_view name) {
  if (name == MILLPOND_EXT_REPORT_1) return report_extension();
  if (name == MILLPOND_EXT_CHECKPOINT_1) return checkpoint_extension();
  if (name == MILLPOND_EXT_STATE_1) return state_extension();
  if (name == MILLPOND_EXT_PHASE_1) return phase_extension();
  if (name == MILLPOND_EXT_FILES_1) return files_extension();
  if (name == MILLPOND_EXT_PROBE_1) return probe_extension();
  return nullptr;
}

}  // namespace millpond::plugin
