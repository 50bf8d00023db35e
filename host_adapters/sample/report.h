// What a run comes to: a table for a person, a document for a program.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_REPORT_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_REPORT_H_

#include <string>

#include "host_adapters/sample/arguments.h"
#include "host_adapters/sample/trainer.h"

namespace millpond::sample {

std::string table(const Arguments& arguments, const RunResult& result);
std::string json_report(const Arguments& arguments, const RunResult& result);

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_REPORT_H_
