// The ceilings count what they say they move, and leave nothing behind.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "millpond/error.hpp"
#include "plugin/probe/drive.h"
#include "plugin/probe/update.h"

namespace millpond::plugin {
namespace {

class Directory {
 public:
  Directory() {
    std::string name = std::filesystem::temp_directory_path() / "millpond-probe-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Drive, moves_the_share_that_was_asked_for) {
  const Directory directory;
  for (const double share : {0.0, 0.25, 0.5, 1.0}) {
    DriveRequest request;
    request.directory = directory.path();
    request.transfer_bytes = 64 << 10;
    request.span_bytes = 4 << 20;
    request.move_bytes = 8 << 20;
    request.read_share = share;
    const DriveRate rate = measure_drive(request);
    EXPECT_EQ(rate.bytes_read + rate.bytes_written, request.move_bytes);
    EXPECT_NEAR(static_cast<double>(rate.bytes_read),
                share * static_cast<double>(request.move_bytes), 64 << 10);
    EXPECT_GT(rate.bytes_per_s, 0.0);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Drive, a_directory_that_is_not_there_is_an_error) {
  DriveRequest request;
  request.directory = "/nonexistent/scratch";
  EXPECT_THROW(measure_drive(request), Error);
}

TEST(Update, counts_the_bytes_of_an_element) {
  UpdateRequest request;
  request.elements = 1 << 18;
  request.threads = 2;
  request.rounds = 1;
  // main, exp_avg, exp_avg_sq read and written, gradient read, model written.
  EXPECT_EQ(measure_update(request).bytes, (24ULL + 4 + 2) << 18);
  request.grad = kernels::Element::kBf16;
  EXPECT_EQ(measure_update(request).bytes, (24ULL + 2 + 2) << 18);
  request.moments = kernels::Storage::kBf16;
  EXPECT_EQ(measure_update(request).bytes, (16ULL + 2 + 2) << 18);
  request.model = kernels::Element::kFp32;  // its own main: moments, gradient, model both ways
  const UpdateRate own = measure_update(request);
  EXPECT_EQ(own.bytes, (8ULL + 2 + 8) << 18);
  EXPECT_GT(own.update_bytes_per_s, 0.0);
  EXPECT_GT(own.ceiling_bytes_per_s, 0.0);
}

}  // namespace
}  // namespace millpond::plugin
