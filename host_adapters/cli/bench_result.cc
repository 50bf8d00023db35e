// What the measurements of a bench come to.
#include <algorithm>

#include "host_adapters/cli/bench.h"

namespace millpond::cli {
namespace {

template <typename Value>
double median_of(const std::vector<Pair>& pairs, Value value) {
  std::vector<double> values;
  values.reserve(pairs.size());
  for (const Pair& pair : pairs) values.push_back(value(pair));
  return median(std::move(values));
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const std::size_t middle = values.size() / 2;
  std::sort(values.begin(), values.end());
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

std::optional<double> Pair::drive_efficiency() const {
  if (raw_mixed_bytes_per_s <= 0 || moved() == 0) return std::nullopt;
  return static_cast<double>(moved()) / settled_s / raw_mixed_bytes_per_s;
}

double BenchResult::median_step_s() const {
  return median_of(pairs, [](const Pair& pair) { return pair.settled_s; });
}

std::optional<double> BenchResult::serial_step_s() const {
  if (serial.empty()) return std::nullopt;
  std::vector<double> seconds;
  for (const SerialStep& step : serial) seconds.push_back(step.seconds);
  return median(std::move(seconds));
}

std::optional<double> BenchResult::raw_mixed_bytes_per_s() const {
  const double rate = median_of(pairs, [](const Pair& p) { return p.raw_mixed_bytes_per_s; });
  return rate > 0 ? std::optional(rate) : std::nullopt;
}

std::optional<double> BenchResult::drive_efficiency() const {
  std::vector<double> values;
  for (const Pair& pair : pairs) {
    if (const auto value = pair.drive_efficiency()) values.push_back(*value);
  }
  if (values.empty()) return std::nullopt;
  return median(std::move(values));
}

std::optional<double> BenchResult::speedup() const {
  const auto serial_s = serial_step_s();
  return serial_s ? std::optional(*serial_s / median_step_s()) : std::nullopt;
}

std::optional<double> BenchResult::predicted_speedup() const {
  if (serial.empty() || raw_read_bytes_per_s <= 0 || raw_write_bytes_per_s <= 0) {
    return std::nullopt;
  }
  const auto state = static_cast<double>(state_bytes);
  const double update = static_cast<double>(update_bytes) / update_bytes_per_s();
  const double one_after_another =
      state / raw_read_bytes_per_s + state / raw_write_bytes_per_s + update;
  const auto mixed = raw_mixed_bytes_per_s();
  const double moving = mixed ? static_cast<double>(middle().moved()) / *mixed : 0;
  return one_after_another / std::max(moving, update);
}

double BenchResult::update_bytes_per_s() const {
  return median_of(pairs, [](const Pair& pair) { return pair.update_bytes_per_s; });
}

double BenchResult::update_ceiling_bytes_per_s() const {
  return median_of(pairs, [](const Pair& pair) { return pair.update_ceiling_bytes_per_s; });
}

double BenchResult::update_efficiency() const {
  return median_of(pairs, [&](const Pair& pair) {
    return static_cast<double>(update_bytes) / pair.settled_s / pair.update_bytes_per_s;
  });
}

double BenchResult::bus_floor_s(const Pair& pair) const {
  return static_cast<double>(state_bytes) / (pair.bus_bytes_per_s / 2);
}

double BenchResult::floor_s(const Pair& pair) const {
  const double drive = pair.raw_mixed_bytes_per_s > 0
                           ? static_cast<double>(pair.moved()) / pair.raw_mixed_bytes_per_s
                           : 0;
  const double update = static_cast<double>(update_bytes) / pair.update_ceiling_bytes_per_s;
  return std::max({drive, bus_floor_s(pair), update});
}

double BenchResult::times_bus_floor() const {
  return median_of(pairs, [&](const Pair& pair) { return pair.settled_s / bus_floor_s(pair); });
}

double BenchResult::times_floor() const {
  return median_of(pairs, [&](const Pair& pair) { return pair.settled_s / floor_s(pair); });
}

// Mains come down over the bus; those that have no place in the tier are written.
double BenchResult::start_floor_s() const {
  const auto mains = static_cast<double>(main_bytes);
  const auto tier = static_cast<double>(runtime_figures.host_bytes);
  const double kept = mains * std::min(1.0, tier / static_cast<double>(state_bytes));
  const double written = raw_write_bytes_per_s > 0 ? (mains - kept) / raw_write_bytes_per_s : 0;
  return cuda->touch_s + cuda->register_s + mains / cuda->bus_down_bytes_per_s + written;
}

const Pair& BenchResult::middle() const {
  std::vector<const Pair*> order;
  for (const Pair& pair : pairs) order.push_back(&pair);
  std::sort(order.begin(), order.end(),
            [](const Pair* a, const Pair* b) { return a->settled_s < b->settled_s; });
  return *order[order.size() / 2];
}

}  // namespace millpond::cli
