// Runs read_checkpoint.py, the reader that shares no code with this project's C++.
#ifndef MILLPOND_TESTS_CHECKPOINT_PYTHON_READER_H_
#define MILLPOND_TESTS_CHECKPOINT_PYTHON_READER_H_

#include <string>
#include <vector>

namespace millpond::checkpoint::testing {

struct PythonAnswer {
  std::string skip;  // why it could not run, in words
  int code = -1;
  std::string text;  // both outputs
};
PythonAnswer read_with_python(const std::vector<std::string>& arguments);

}  // namespace millpond::checkpoint::testing

#endif  // MILLPOND_TESTS_CHECKPOINT_PYTHON_READER_H_
