#include "tests/checkpoint/python_reader.h"

#include <sys/wait.h>

#include <cstdio>

namespace millpond::checkpoint::testing {
namespace {

PythonAnswer run(const std::string& command) {
  PythonAnswer answer;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {"popen failed", -1, ""};
  char chunk[4096];
  while (const std::size_t got = std::fread(chunk, 1, sizeof chunk, pipe)) {
    answer.text.append(chunk, got);
  }
  const int status = pclose(pipe);
  answer.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return answer;
}

}  // namespace

PythonAnswer read_with_python(const std::vector<std::string>& arguments) {
  const std::string python = MILLPOND_PYTHON;
  if (python.empty()) return {"MILLPOND_PYTHON names no Python with numpy and xxhash", -1, ""};
  if (run("'" + python + "' -c 'import numpy, xxhash'").code != 0) {
    return {python + " has no numpy or no xxhash", -1, ""};
  }
  std::string command = "'" + python + "' '" MILLPOND_CHECKPOINT_READER "'";
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  return run(command);
}

}  // namespace millpond::checkpoint::testing
