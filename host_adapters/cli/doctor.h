// `millpond doctor DIR`: what probe/1 finds, as a table of verdicts.
#ifndef MILLPOND_HOST_ADAPTERS_CLI_DOCTOR_H_
#define MILLPOND_HOST_ADAPTERS_CLI_DOCTOR_H_

#include <string>

#include "host_adapters/cli/arguments.h"
#include "host_adapters/cli/progress.h"

namespace millpond::cli {

struct Diagnosis {
  bool will_work = false;
  std::string table;
  std::string json;
};

// Throws Error, PluginError: it could not look. What it finds is in the diagnosis.
Diagnosis run_doctor(const DoctorArguments& arguments, Progress& progress);

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_CLI_DOCTOR_H_
