// The drive's rate before a first bind, and what follows from it; the log's line of a step.
#include "plugin/store/drive_rate.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "plugin/store/step_line.h"

namespace millpond::plugin {
namespace {

class Directory {
 public:
  Directory() {
    std::string name = std::filesystem::temp_directory_path() / "millpond-rate-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(DriveSpeed, is_measured_and_shared_among_ranks) {
  const Directory directory;
  Options options;
  options.scratch = {directory.path(), directory.path() + "/."};
  const DriveSpeed speed = measure_speed(options);
  ASSERT_TRUE(speed.measured) << speed.sentence;
  EXPECT_GT(speed.bytes_per_s, 1e6);
  EXPECT_NE(speed.sentence.find("measured"), std::string::npos) << speed.sentence;
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(DriveSpeed, what_cannot_be_measured_is_assumed_and_says_why) {
  Options options;
  options.scratch = {"/nonexistent/scratch"};
  const DriveSpeed speed = measure_speed(options);
  EXPECT_FALSE(speed.measured);
  EXPECT_GT(speed.bytes_per_s, 0);
  EXPECT_NE(speed.sentence.find("/nonexistent/scratch"), std::string::npos) << speed.sentence;
}

TEST(DriveSpeed, faster_drives_get_more_in_flight_and_larger_tiles) {
  const auto of = [](double rate) { return DriveSpeed{rate, true, ""}; };
  EXPECT_EQ(depth_bytes_for(of(0.1e9)), 64ull << 20);
  EXPECT_EQ(depth_bytes_for(of(4e9)), 200'000'000u);
  EXPECT_EQ(depth_bytes_for(of(100e9)), 1ull << 30);
  EXPECT_EQ(tile_elements_for(of(1.3e9)), 1u << 20);
  EXPECT_EQ(tile_elements_for(of(5e9)), 2u << 20);
  EXPECT_EQ(tile_elements_for(of(12e9)), 4u << 20);
  EXPECT_EQ(tile_elements_for({12e9, false, ""}), 1u << 20) << "an assumption changes nothing";
}

millpond_step_figures figures() {
  millpond_step_figures f{};
  f.outcome = MILLPOND_STEP_DONE;
  f.bound_by = MILLPOND_STAGE_FLUSH;
  f.step = 12;
  f.tiles = 191;
  f.tiles_from_tier = 12;
  f.bytes_read = 2'250'000'000;
  f.bytes_written = 2'240'000'000;
  f.bytes_from_tier = 147'700'000;
  f.seconds = 3.97;
  f.busy_seconds[MILLPOND_STAGE_FETCH] = 3.67;
  f.waiting_seconds[MILLPOND_STAGE_FETCH] = 1.44;
  f.busy_seconds[MILLPOND_STAGE_FLUSH] = 3.83;
  return f;
}

TEST(StepLine, has_the_figures_with_units) {
  std::array<char, 512> room;
  EXPECT_EQ(step_line(figures(), "rank00000/opt0_0", room),
            "step 12 of rank00000/opt0_0: 3.970 s, bound by flush; read 2250.0 MB, written 2240.0 "
            "MB, from the tier 147.7 MB (12 of 191 tiles); busy and waited for, s: fetch 3.670 "
            "1.440 flush 3.830 0.000");
  millpond_step_figures skipped = figures();
  skipped.outcome = MILLPOND_STEP_SKIPPED;
  EXPECT_EQ(step_line(skipped, "a", room), "step after 12 of a: skipped, found_inf is set");
}

TEST(StepLine, is_cut_at_the_room) {
  std::array<char, 20> room;
  EXPECT_EQ(step_line(figures(), "rank00000/opt0_0", room), "step 12 of rank00000");
}

}  // namespace
}  // namespace millpond::plugin
