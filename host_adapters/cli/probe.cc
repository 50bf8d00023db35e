#include "host_adapters/cli/probe.h"

#include <string>

#include "millpond/client/plugin_error.h"

namespace millpond::cli {

Json ask(millpond_files_fn entry, millpond_runtime* runtime, const Json& request) {
  const std::string text = request.dump();
  std::string answer;
  const millpond_sink_fn sink = [](void* context, millpond_str piece) {
    static_cast<std::string*>(context)->append(piece.ptr, piece.len);
  };
  millpond_status status = client::new_status();
  const std::int32_t code = entry(runtime, {text.data(), text.size()}, sink, &answer, &status);
  if (code != MILLPOND_OK) throw client::PluginError(code, status);
  return Json::parse(answer);
}

}  // namespace millpond::cli
