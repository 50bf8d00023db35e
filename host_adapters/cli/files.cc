#include "host_adapters/cli/files.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "host_adapters/cli/probe.h"
#include "host_adapters/command_line/quantity.h"
#include "millpond/client/plugin.h"
#include "millpond/error.hpp"

namespace millpond::cli {
namespace {

std::string bytes_of(const Json& value) { return show_bytes(value.get<double>()); }

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text + "  ";
}

std::string shape(const Json& sizes) {
  std::string text;
  for (const Json& size : sizes) text += (text.empty() ? "" : " x ") + size.dump();
  return text.empty() ? "scalar" : text;
}

// A thousand ranks are told by their first ones; --json has them all.
constexpr std::size_t kMostRows = 40;

std::string more(std::size_t count) {
  if (count <= kMostRows) return {};
  return "  ... and " + std::to_string(count - kMostRows) + " more (--json has all)\n";
}

std::string inspect_table(const Json& answer) {
  const Json& stores = answer.at("stores");
  std::string text = "save " + answer.at("save_id").get<std::string>() + ", number " +
                     answer.at("sequence").dump() + " of its directory\n" + "world size " +
                     answer.at("world_size").dump() + ", " + std::to_string(stores.size()) +
                     " store(s), " + answer.at("elements").dump() + " elements, " +
                     bytes_of(answer.at("bytes")) + "\n\nstores\n";
  for (std::size_t i = 0; i < std::min(stores.size(), kMostRows); ++i) {
    const Json& store = stores[i];
    std::string axes;
    for (const auto& [name, place] : store.at("topology").items()) {
      axes += ", " + name + " " + place.at(0).dump() + "/" + place.at(1).dump();
    }
    text += "  " + padded(store.at("uid").get<std::string>(), 18) + "step " +
            padded(store.at("step").dump(), 7) + padded(bytes_of(store.at("bytes")), 10) +
            store.at("main").get<std::string>() + " main, " +
            store.at("exp_avg").get<std::string>() + " moments, " + store.at("buckets").dump() +
            " bucket(s)" + axes + "\n";
  }
  text += more(stores.size()) + "\nparameters\n";
  const Json& parameters = answer.at("parameters");
  for (std::size_t i = 0; i < std::min(parameters.size(), kMostRows); ++i) {
    const Json& row = parameters[i];
    text += "  " + padded(row.at("key").get<std::string>(), 32) +
            padded(shape(row.at("global_shape")), 16) + "step " + padded(row.at("step").dump(), 7) +
            (row.at("kind") == "moments_only" ? "moments only" : "") + "\n";
  }
  text += more(parameters.size());
  for (const Json& why : answer.at("unreadable")) {
    text += "damaged: " + why.get<std::string>() + "\n";
  }
  for (const Json& id : answer.at("uncommitted")) {
    text += "unfinished attempt: " + id.get<std::string>() + "\n";
  }
  return text;
}

std::string diff_table(const Json& answer) {
  if (answer.at("equal").get<bool>()) {
    return "the same: " + answer.at("elements").dump() + " elements, step " +
           answer.at("step_a").dump() + "\n";
  }
  std::string text = "steps " + answer.at("step_a").dump() + " and " + answer.at("step_b").dump() +
                     "; of " + answer.at("elements").dump() + " elements differ:\n";
  const Json& rows = answer.at("differing");
  for (std::size_t i = 0; i < std::min(rows.size(), kMostRows); ++i) {
    const Json& row = rows[i];
    text += "  " + padded(row.at("key").get<std::string>(), 32) +
            padded(row.at("segment").get<std::string>(), 10) + padded(row.at("count").dump(), 9) +
            "largest difference " + padded(row.at("max_abs").dump(), 12) + "first at " +
            row.at("first").dump() + ": " + row.at("a").dump() + " and " + row.at("b").dump() +
            "\n";
  }
  return text + more(rows.size());
}

std::string done_table(const FilesArguments& a, const Json& answer) {
  std::string text;
  if (answer.contains("save_id")) text += "save " + answer.at("save_id").get<std::string>() + ": ";
  text += answer.at("stores").dump() + " store(s), " + bytes_of(answer.at("bytes"));
  if (a.name == "verify") text += ", " + answer.at("blocks").dump() + " blocks, all as written";
  return text + "\n";
}

std::string layout_text(const FilesArguments& a) {
  std::ifstream file(a.layout, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file) return text;
  throw Error(MILLPOND_E_IO, "read", "the layout cannot be read")
      .path(a.layout)
      .field("--layout")
      .remedy("Name a JSON file; plugin/files/reference_layout.h has its form");
}

Json request_of(const FilesArguments& a) {
  Json request = {{"path", a.path}};
  if (!a.save_id.empty()) request["save_id"] = a.save_id;
  if (a.name == "diff") request["other"] = a.other;
  if (!a.other_save_id.empty()) request["other_save_id"] = a.other_save_id;
  if (!a.to.empty()) request["to"] = a.to;
  if (a.name == "reshard") request["world_size"] = a.world_size;
  if (!a.layout.empty()) request["layout"] = layout_text(a);
  return request;
}

millpond_files_fn entry_of(const millpond_ext_files& files, const std::string& name) {
  return name == "inspect"   ? files.inspect
         : name == "verify"  ? files.verify
         : name == "reshard" ? files.reshard
         : name == "import"  ? files.import_reference
         : name == "export"  ? files.export_reference
                             : files.diff;
}

}  // namespace

FilesAnswer run_files(const FilesArguments& arguments, Progress& progress) {
  const Json request = request_of(arguments);
  const client::Plugin plugin = client::Plugin::open(arguments.plugin);
  client::Callbacks callbacks;
  callbacks.progress = [&](std::string_view, std::uint64_t done, std::uint64_t total) {
    progress.at(0, total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total));
    return true;
  };
  // A runtime that is never bound: it only carries the progress callback.
  const client::Runtime runtime = plugin.create_runtime(
      Json({{"scratch", "."}, {"io_engine", "threads"}, {"log_level", "warning"}}).dump(),
      std::move(callbacks));
  progress.begin(arguments.name, 1);
  const Json answer = ask(entry_of(plugin.files(), arguments.name), runtime.handle(), request);
  FilesAnswer result;
  result.json = answer.dump(2) + "\n";
  result.equal = answer.value("equal", true);
  result.table = arguments.name == "inspect" ? inspect_table(answer)
                 : arguments.name == "diff"  ? diff_table(answer)
                                             : done_table(arguments, answer);
  return result;
}

}  // namespace millpond::cli
