// What counts of a measurement that was made several times.
#ifndef MILLPOND_PLUGIN_PROBE_MEDIAN_H_
#define MILLPOND_PLUGIN_PROBE_MEDIAN_H_

#include <algorithm>
#include <vector>

namespace millpond::plugin {

// The upper one of an even number of values; 0 for none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PROBE_MEDIAN_H_
