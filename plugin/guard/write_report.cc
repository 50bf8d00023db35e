#include <protozero/pbf_writer.hpp>
#include <string>

#include "plugin/guard/profile.h"

namespace millpond::plugin {
namespace {

using protozero::pbf_writer;

// proto3 leaves fields out that have their default value, and the official library writes fields in
// order of their numbers: doing the same makes the bytes comparable.
void put(pbf_writer& writer, protozero::pbf_tag_type tag, std::uint64_t value) {
  if (value != 0) writer.add_uint64(tag, value);
}
void put(pbf_writer& writer, protozero::pbf_tag_type tag, const std::string& value) {
  if (!value.empty()) writer.add_string(tag, value);
}
void put(pbf_writer& writer, protozero::pbf_tag_type tag, double value) {
  if (value != 0) writer.add_double(tag, value);
}
void put(pbf_writer& writer, protozero::pbf_tag_type tag, bool value) {
  if (value) writer.add_bool(tag, value);
}

void write_refusal(pbf_writer writer, const Refusal& refusal) {
  put(writer, 1, refusal.code);
  put(writer, 2, refusal.subject);
  put(writer, 3, refusal.reason);
  put(writer, 4, refusal.remedy);
}

void write_plan(pbf_writer writer, const PlanReport& plan) {
  put(writer, 1, plan.shards);
  put(writer, 2, plan.elements);
  put(writer, 3, plan.buckets);
  put(writer, 4, plan.tiles);
  put(writer, 5, plan.tile_elements);
  put(writer, 6, plan.block_elements);
  for (const PlanReport::Directory& directory : plan.directories) {
    std::string inner;
    pbf_writer child(inner);
    put(child, 1, directory.path);
    put(child, 2, directory.bytes);
    put(child, 3, directory.direct);
    writer.add_message(7, inner);
  }
  put(writer, 8, plan.host_bytes);
  put(writer, 9, plan.device_bytes);
  put(writer, 10, plan.engine);
  put(writer, 11, plan.engine_reason);
  put(writer, 12, plan.read_bytes_per_step);
  put(writer, 13, plan.write_bytes_per_step);
  put(writer, 14, plan.drive_bytes_per_second);
  put(writer, 15, plan.drive_source);
  put(writer, 16, plan.expected_seconds_per_step);
  put(writer, 17, plan.tier_tiles);
  put(writer, 18, plan.shards_kept);
}

}  // namespace

std::string write_report(const std::vector<Refusal>& refusals, const PlanReport* plan) {
  std::string bytes;
  pbf_writer writer(bytes);
  put(writer, 1, refusals.empty() && plan != nullptr);
  for (const Refusal& refusal : refusals) {
    // Built apart: protozero drops a nested writer that wrote nothing, but a repeated field counts.
    std::string inner;
    write_refusal(pbf_writer(inner), refusal);
    writer.add_message(2, inner);
  }
  if (plan != nullptr) {
    std::string inner;
    write_plan(pbf_writer(inner), *plan);
    writer.add_message(3, inner);
  }
  return bytes;
}

}  // namespace millpond::plugin
