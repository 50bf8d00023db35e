// The same training with each storage format of the moments, against fp32.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_FORMATS_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_FORMATS_H_

#include <string>

#include "host_adapters/sample/arguments.h"
#include "host_adapters/sample/place.h"
#include "host_adapters/sample/progress.h"

namespace millpond::sample {

struct FormatTable {
  std::string text;  // for a person
  std::string json;
  // 16-bit formats end within 0.5% of fp32's bits per byte, 8-bit ones within 3%.
  bool within_limits = true;
};

FormatTable try_formats(Arguments arguments, const Place& place, Progress& progress);

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_FORMATS_H_
