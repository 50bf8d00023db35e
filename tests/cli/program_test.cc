// `millpond` as a program: real runs with small stores.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

extern char** environ;

namespace millpond::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Program : public testing::Test {
 protected:
  Program() {
    std::string name = fs::temp_directory_path() / "millpond-cli-XXXXXX";
    directory_ = mkdtemp(name.data());
    fs::create_directory(scratch());
  }
  ~Program() override { fs::remove_all(directory_); }

  fs::path scratch() const { return directory_ / "scratch"; }
  fs::path json_path() const { return directory_ / "figures.json"; }

  // The exit code; what the program prints goes to out() and error().
  int run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), MILLPOND_TEST_CLI);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const fs::path out = directory_ / "out";
    const fs::path error = directory_ / "error";
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, error.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, MILLPOND_TEST_CLI, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    out_ = contents(out);
    error_ = contents(error);
    EXPECT_TRUE(WIFEXITED(status)) << error_;
    return WEXITSTATUS(status);
  }
  int bench(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"bench",     "--plugin", MILLPOND_TEST_PLUGIN,
                                    "--scratch", scratch(),  "--ceiling-bytes",
                                    "16MiB",     "--steps",  "3",
                                    "--json",    json_path()};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  }
  int doctor(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"doctor", "--plugin", MILLPOND_TEST_PLUGIN, "--json",
                                    json_path()};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  }
  Json figures() const { return Json::parse(contents(json_path())); }
  const std::string& out() const { return out_; }
  const std::string& error() const { return error_; }

  static std::string contents(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  fs::path directory_;
  std::string out_, error_;
};

TEST_F(Program, help_names_options_keys_and_examples) {
  EXPECT_EQ(run({"--help"}), 0);
  for (const char* word : {"bench", "doctor", "Examples:", "Exit codes:"}) {
    EXPECT_NE(out().find(word), std::string::npos) << word;
  }
  EXPECT_EQ(run({"bench", "--help"}), 0);
  for (const char* word : {"--params",
                           "--moments",
                           "--tier",
                           "--engine",
                           "--scratch",
                           "--steps",
                           "--json",
                           "--plugin",
                           "--serial-steps",
                           "--device",
                           "bytes_per_step_read",
                           "bytes_per_step_written",
                           "step_s",
                           "raw_mixed_bytes_per_s",
                           "update_bytes_per_s",
                           "update_ceiling_bytes_per_s",
                           "serial_step_s",
                           "drive_efficiency",
                           "tier_bytes",
                           "rss_peak_bytes",
                           "Examples:"}) {
    EXPECT_NE(out().find(word), std::string::npos) << word;
  }
  EXPECT_EQ(run({"doctor", "--help"}), 0);
  for (const char* word : {"DIR", "--params", "remedy", "Exit codes:", "Examples:"}) {
    EXPECT_NE(out().find(word), std::string::npos) << word;
  }
}

TEST_F(Program, wrong_command_lines_end_with_2) {
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(run({"benches"}), 2);
  EXPECT_NE(error().find("\"benches\""), std::string::npos) << error();
  EXPECT_EQ(run({"bench"}), 2);  // no --scratch
  EXPECT_EQ(bench({"--params", "many"}), 2);
  EXPECT_NE(error().find("600M"), std::string::npos) << error();
  EXPECT_EQ(bench({"--tier", "8Gx"}), 2);
  EXPECT_EQ(bench({"--moments", "fp7"}), 2);
  EXPECT_EQ(bench({"--device", "cuda:x"}), 2);
  EXPECT_NE(error().find("cuda:N"), std::string::npos) << error();
  EXPECT_EQ(bench({"--option", "direct"}), 2);
  EXPECT_EQ(run({"doctor"}), 2);
}

TEST_F(Program, failures_end_with_1_and_say_what_to_do) {
  EXPECT_EQ(bench({"--plugin", "/nowhere.so"}), 1);
  EXPECT_NE(error().find("/nowhere.so"), std::string::npos) << error();
  EXPECT_EQ(bench({"--option", "tile_element=4096"}), 2) << "a wrong command line";
  EXPECT_NE(error().find("did you mean \"tile_elements\""), std::string::npos) << error();
  EXPECT_EQ(bench({"--params", "1M", "--scratch", "/nonexistent/scratch"}), 1);
  EXPECT_NE(error().find("/nonexistent/scratch"), std::string::npos) << error();
  EXPECT_NE(error().find("Name an existing directory"), std::string::npos) << error();
  EXPECT_EQ(bench({"--params", "1000B"}), 1);
  EXPECT_NE(error().find("fewer --params"), std::string::npos) << error();
  EXPECT_EQ(bench({"--params", "1M", "--json", "/nonexistent/figures.json", "--warmup", "100"}), 1)
      << "before the first step";
  EXPECT_NE(error().find("/nonexistent/figures.json"), std::string::npos) << error();
  EXPECT_NE(error().find("errno 2"), std::string::npos) << error();
  EXPECT_EQ(bench({"--params", "4M", "--tier", "1MiB"}), 1);
  EXPECT_NE(error().find("host_memory_bytes is --tier"), std::string::npos) << error();
  EXPECT_TRUE(fs::is_empty(scratch()));
}

// 64 tiles of 65536 elements and 12 bytes each.
constexpr std::uint64_t kTile = 65536 * 12;
const std::vector<std::string> kWork = {"--params", "4194304", "--tile", "65536"};

std::vector<std::string> work_with(std::vector<std::string> more) {
  more.insert(more.begin(), kWork.begin(), kWork.end());
  return more;
}

TEST_F(Program, bench_moves_what_the_formula_says) {
  // 53 places; the ring is 32 MiB: 42 of them.
  ASSERT_EQ(bench(work_with({"--tier", "40MiB"})), 0) << error();
  const Json f = figures();
  const std::uint64_t tiles = f["tiles"], kept = f["tier_tiles"];
  EXPECT_EQ(tiles, 64u);
  EXPECT_EQ(f["tile_bytes"], kTile);
  EXPECT_EQ(f["ring_tiles"], 42u);
  EXPECT_EQ(kept, 11u);
  EXPECT_EQ(f["tier_bytes"], 53 * kTile);
  EXPECT_EQ(f["bytes_per_step_read"], (tiles - kept) * kTile);
  EXPECT_EQ(f["bytes_per_step_written"], (tiles - kept) * kTile);
  EXPECT_EQ(f["bytes_from_tier"], kept * kTile);
  EXPECT_EQ(f["state_bytes"], 64 * kTile);
  EXPECT_EQ(f["params"], 4194304u);
  ASSERT_EQ(f["step_s"].size(), 3u);
  for (const Json& seconds : f["step_s"]) EXPECT_GT(seconds.get<double>(), 0);
  for (const char* key :
       {"raw_mixed_bytes_per_s", "update_bytes_per_s", "update_ceiling_bytes_per_s",
        "serial_step_s", "drive_efficiency", "raw_read_bytes_per_s", "raw_write_bytes_per_s",
        "speedup", "predicted_speedup", "update_efficiency"}) {
    ASSERT_TRUE(f[key].is_number()) << key;
    EXPECT_GT(f[key].get<double>(), 0) << key;
  }
  EXPECT_EQ(f["serial"]["steps"], 1u);
  EXPECT_TRUE(f["engine"] == "io_uring" || f["engine"] == "io_uring_plain" ||
              f["engine"] == "threads")
      << f["engine"];
  EXPECT_TRUE(f["direct"].is_boolean());
  if (f["rss_peak_bytes"].is_number()) {
    // Tier and 64 MiB over what the host holds. A sanitizer's own memory is not ours.
    const char* const sanitized = std::getenv("MILLPOND_SANITIZED");
    if (sanitized == nullptr) {
      EXPECT_LE(f["rss_peak_bytes"].get<std::uint64_t>(), f["rss_host_bytes"].get<std::uint64_t>() +
                                                              f["tier_bytes"].get<std::uint64_t>() +
                                                              (64ull << 20));
    }
    EXPECT_GE(f["rss_peak_bytes"].get<std::uint64_t>(), f["tier_bytes"].get<std::uint64_t>());
  }
  for (const char* part : {"Ceilings of this machine", "Serial store", "The plugin's step",
                           "of the drive's ceiling", "faster than serial"}) {
    EXPECT_NE(out().find(part), std::string::npos) << part << "\n" << out();
  }
  EXPECT_TRUE(fs::is_empty(scratch()));
  // Every key is documented, as a word of its own.
  EXPECT_EQ(run({"bench", "--help"}), 0);
  const std::string help = std::regex_replace(out(), std::regex("[^a-z0-9_]+"), " ");
  for (const auto& [key, value] : f.items()) {
    EXPECT_NE(help.find(" " + key + " "), std::string::npos) << key;
  }
}

TEST_F(Program, bench_with_all_in_the_tier_moves_nothing) {
  ASSERT_EQ(bench(work_with({"--tier", "1GiB", "--serial-steps", "0", "--verbose"})), 0) << error();
  const Json f = figures();
  EXPECT_EQ(f["bytes_per_step_read"], 0u);
  EXPECT_EQ(f["bytes_per_step_written"], 0u);
  EXPECT_EQ(f["tier_tiles"], 64u);
  EXPECT_NE(out().find("nothing was streamed; it would be with --tier 16MiB --tile 262144"),
            std::string::npos)
      << out();
  EXPECT_EQ(f["bound_by"], "update");
  EXPECT_TRUE(f["drive_efficiency"].is_null());
  EXPECT_TRUE(f["serial_step_s"].is_null());
  EXPECT_EQ(f["expected_drive_source"], "assumed") << "a small store is not worth measuring";
  EXPECT_NE(error().find("host_memory_bytes"), std::string::npos) << "--verbose has the log";
  EXPECT_NE(error().find("step 5 of rank00000/opt0_0: "), std::string::npos) << error();
}

TEST_F(Program, bench_takes_formats_engines_and_directories) {
  const fs::path second = scratch().parent_path() / "second";
  fs::create_directory(second);
  ASSERT_EQ(bench(work_with({"--moments", "bf16", "--engine", "threads", "--direct", "false",
                             "--scratch", second, "--bucket", "1048576", "--shard", "1048576",
                             "--tier", "36MiB", "--gradients", "bf16", "--threads", "1"})),
            0)
      << error();
  const Json f = figures();
  EXPECT_EQ(f["engine"], "threads");
  EXPECT_EQ(f["direct"], false);
  EXPECT_EQ(f["state_bytes"], 4194304u * 8);
  EXPECT_EQ(f["buckets"], 4u);
  EXPECT_EQ(f["update_threads"], 1u);
  ASSERT_EQ(f["directories"].size(), 2u);
  EXPECT_EQ(f["directories"][0]["bytes"], f["directories"][1]["bytes"]);
  ASSERT_EQ(bench({"--params", "1M", "--parameters", "fp32", "--moments", "fp8_e4m3"}), 0)
      << error();
  EXPECT_EQ(figures()["state_bytes"], 2000000u);
  EXPECT_NE(error().find("serial store"), std::string::npos) << error();
}

TEST_F(Program, ranks_are_measured_together_and_reported_as_one_node) {
  ASSERT_EQ(bench(work_with({"--ranks", "2", "--tier", "36MiB", "--threads", "1"})), 0) << error();
  const Json f = figures();
  EXPECT_EQ(f["ranks"], 2u);
  EXPECT_EQ(f["params"], 4194304u);
  ASSERT_EQ(f["by_rank"].size(), 2u);
  std::uint64_t read = 0;
  for (const Json& rank : f["by_rank"]) {
    // 32 tiles; 48 places, so that all of them stay.
    EXPECT_EQ(rank["tiles"], 32u);
    EXPECT_EQ(rank["params"], 2097152u);
    EXPECT_TRUE(rank["serial_step_s"].is_null());
    read += rank["bytes_per_step_read"].get<std::uint64_t>();
  }
  EXPECT_EQ(f["bytes_per_step_read"], read);
  ASSERT_EQ(f["settled_s"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const double first = f["by_rank"][0]["settled_s"][i], second = f["by_rank"][1]["settled_s"][i];
    EXPECT_EQ(f["settled_s"][i], std::max(first, second));
  }
  EXPECT_NE(out().find("node: "), std::string::npos) << out();
  EXPECT_NE(out().find("slowest: rank "), std::string::npos) << out();
  EXPECT_NE(error().find("rank 1 is process "), std::string::npos) << error();
  EXPECT_TRUE(fs::is_empty(scratch()));
  EXPECT_EQ(run({"bench", "--help"}), 0);
  const std::string help = std::regex_replace(out(), std::regex("[^a-z0-9_]+"), " ");
  for (const auto& [key, value] : f.items()) {
    EXPECT_NE(help.find(" " + key + " "), std::string::npos) << key;
  }
}

TEST_F(Program, ranks_share_a_drive_whose_ceiling_is_measured_alone) {
  // 3 tiles of 262144 elements a rank, and room for two and a half.
  ASSERT_EQ(bench({"--params", "1572864", "--tile", "131072", "--tier", "8MiB", "--ranks", "2",
                   "--threads", "1"}),
            0)
      << error();
  const Json f = figures();
  EXPECT_GT(f["bytes_per_step_read"].get<std::uint64_t>(), 0u);
  EXPECT_GT(f["drive_efficiency"].get<double>(), 0);
  EXPECT_GT(f["by_rank"][0]["raw_mixed_bytes_per_s"].get<double>(), 0);
  EXPECT_TRUE(f["by_rank"][1]["raw_mixed_bytes_per_s"].is_null());
  EXPECT_NE(out().find("of the drive's "), std::string::npos) << out();
}

TEST_F(Program, one_rank_that_fails_ends_the_node) {
  EXPECT_EQ(bench({"--params", "4M", "--tier", "1MiB", "--ranks", "3"}), 1);
  EXPECT_NE(error().find(": millpond: "), std::string::npos) << error();
  EXPECT_TRUE(fs::is_empty(scratch()));
  EXPECT_EQ(bench({"--params", "1", "--ranks", "2"}), 2) << "a rank without a parameter";
  EXPECT_NE(error().find("--ranks"), std::string::npos) << error();
}

TEST_F(Program, figures_may_go_to_the_standard_output_alone) {
  ASSERT_EQ(bench(work_with({"--tier", "40MiB", "--serial-steps", "0", "--json", "-"})), 0)
      << error();
  EXPECT_EQ(Json::parse(out())["params"], 4194304u);
  EXPECT_NE(error().find("The plugin's step"), std::string::npos) << error();
  EXPECT_EQ(error().find("nothing was streamed"), std::string::npos) << error();
}

TEST_F(Program, doctor_says_yes_with_a_verdict_for_each) {
  ASSERT_EQ(doctor({scratch(), "--params", "1M", "--drive-bytes", "16MiB"}), 0) << out() << error();
  const Json f = figures();
  EXPECT_NE(f["verdict"], "failed");
  std::vector<std::string> names;
  for (const Json& check : f["checks"]) {
    names.push_back(check["name"]);
    EXPECT_NE(check["found"], "") << names.back();
    EXPECT_NE(out().find(names.back()), std::string::npos) << names.back();
  }
  for (const char* name :
       {"engine", "memlock", "memory", "open_files", "processor", "cuda", "directory", "filesystem",
        "o_direct", "o_tmpfile", "reflink", "free_space", "drive"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
  EXPECT_EQ(f["drive"]["rates"].size(), 3u);
  EXPECT_TRUE(fs::is_empty(scratch()));
}

TEST_F(Program, doctor_says_no_with_3_and_a_remedy) {
  EXPECT_EQ(doctor({"/nonexistent/scratch"}), 3);
  EXPECT_EQ(figures()["verdict"], "failed");
  EXPECT_NE(out().find("-> Name an existing directory"), std::string::npos) << out();
  EXPECT_EQ(doctor({scratch(), "--params", "10000B", "--no-drive"}), 3);
  EXPECT_NE(out().find("Free space"), std::string::npos) << out();
  EXPECT_FALSE(figures().contains("drive"));
  EXPECT_EQ(doctor({scratch(), "--plugin", "/nowhere.so"}), 1);
}

}  // namespace
}  // namespace millpond::cli
