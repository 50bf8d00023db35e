// The file of --json: shown to be writable before minutes are spent, whole or not there afterwards.
#ifndef MILLPOND_HOST_ADAPTERS_COMMAND_LINE_OUTPUT_FILE_H_
#define MILLPOND_HOST_ADAPTERS_COMMAND_LINE_OUTPUT_FILE_H_

#include <filesystem>
#include <string>
#include <string_view>

namespace millpond::cli {

class OutputFile {
 public:
  // `path` empty: nothing is written; "-": the standard output. Else a temporary file beside it is
  // made at once; what is no regular file (a pipe, /dev/null) is opened instead. `option` is for
  // messages. Throws Error(E_IO).
  OutputFile(std::filesystem::path path, std::string option);
  ~OutputFile();  // removes the temporary file
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  bool is_standard_output() const { return path_ == "-"; }
  // Once. Synced and renamed to the path. Throws Error(E_IO, E_NO_SPACE).
  void write(std::string_view bytes);

 private:
  [[noreturn]] void fail(const char* operation, int error_number) const;

  std::filesystem::path path_, temporary_;
  std::string option_;
  int fd_ = -1;
};

}  // namespace millpond::cli

#endif  // MILLPOND_HOST_ADAPTERS_COMMAND_LINE_OUTPUT_FILE_H_
