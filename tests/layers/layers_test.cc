// The tree keeps its layers, its files' lengths and names. Each check is also shown a small tree
// with the fault it looks for: a check that finds nothing there would be no check.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "tests/layers/rules.h"

namespace {

using namespace millpond::layers;
namespace fs = std::filesystem;

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

TEST(Layers, no_folder_includes_what_it_may_not) {
  const auto found = include_violations(MILLPOND_SOURCE_ROOT);
  EXPECT_TRUE(found.empty()) << joined(found);
}
TEST(Layers, no_host_adapter_links_the_plugin) {
  const auto found = link_violations(MILLPOND_SOURCE_ROOT);
  EXPECT_TRUE(found.empty()) << joined(found);
}
TEST(Layers, files_are_short) {
  const auto found = length_violations(MILLPOND_SOURCE_ROOT);
  EXPECT_TRUE(found.empty()) << joined(found);
}
TEST(Layers, names_explain_themselves) {
  const auto found = name_violations(MILLPOND_SOURCE_ROOT);
  EXPECT_TRUE(found.empty()) << joined(found);
}
TEST(Layers, every_folder_has_a_readme) {
  const auto found = readme_violations(MILLPOND_SOURCE_ROOT);
  EXPECT_TRUE(found.empty()) << joined(found);
}

class Planted : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "millpond_layers_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }
  void plant(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  fs::path root_;
};

TEST_F(Planted, upward_includes_are_found) {
  const std::pair<const char*, const char*> faults[] = {
      {"kernels/a.cc", "#include \"plugin/io/engine.h\"\n"},
      {"checkpoint/a.h", "#include \"plugin/core/host.h\"\n"},
      {"plugin/io/a.cc", "#  include \"plugin/pipeline/pipeline.h\"\n"},
      {"plugin/pipeline/a.cc", "#include \"plugin/device/work.h\"\n"},
      {"plugin/store/a.cc", "#include \"plugin/exports/table.h\"\n"},
      {"host_adapters/client/a.cc", "#include \"plugin/guard/profile.h\"\n"},
      {"host_adapters/client/b.cc", "#include \"../../kernels/adam.h\"\n"},
      {"abi/include/millpond/a.h", "#include \"kernels/storage.h\"\n"},
      {"plugin/new_folder/a.cc", "#include \"millpond/base.h\"\n"},
      {"plugin/guard/a.cc", "#include <google/protobuf/message.h>\n"},
      {"plugin/store/b.cc", "#include <liburing.h>\n"},
      {"plugin/store/c.cc", "#include \"millpond/client/store.h\"\n"},
      {"plugin/device/a.cc", "#include <torch/torch.h>\n"},
      {"host_adapters/client/c.cc", "#include <cuda_runtime_api.h>\n"},
  };
  for (const auto& [path, text] : faults) plant(path, text);
  plant("plugin/io/fine.cc", "#include \"plugin/core/host.h\"\n#include <liburing.h>\n");
  const auto found = include_violations(root_);
  EXPECT_EQ(found.size(), std::size(faults)) << joined(found);
}

TEST_F(Planted, R07_checks_that_a_build_flag_drops_are_found) {
  plant("plugin/store/a.cc", "#include <cassert>\n");
  plant("checkpoint/a.cc", "#include <assert.h>\n");
  plant("host_adapters/sample/a.cc", "#include <cassert>\n");
  const auto found = include_violations(root_);
  EXPECT_EQ(found.size(), 3U) << joined(found);
}

TEST_F(Planted, links_of_the_plugin_are_found) {
  plant("host_adapters/client/CMakeLists.txt",
        "millpond_library(millpond_client SOURCES a.cc\n  DEPENDS millpond_abi\n  millpond_io)\n");
  plant("host_adapters/sample/CMakeLists.txt", "target_link_libraries(x PRIVATE millpond)\n");
  plant("examples/embed/CMakeLists.txt", "target_link_libraries(x PRIVATE millpond_abi)\n");
  const auto found = link_violations(root_);
  EXPECT_EQ(found.size(), 2u) << joined(found);
}

TEST_F(Planted, long_files_are_found) {
  std::string lines;
  for (int i = 0; i < 399; ++i) lines += "//\n";
  plant("plugin/io/short.cc", lines);
  EXPECT_TRUE(length_violations(root_).empty());
  plant("plugin/io/long.cc", lines + "//\n");
  EXPECT_EQ(length_violations(root_).size(), 1u);
}

TEST_F(Planted, vague_names_are_found) {
  plant("plugin/io/io_utils.cc", "");
  plant("kernels/common/a.h", "");
  plant("tests/python/Helper.py", "");
  plant("plugin/io/commonplace.cc", "");
  EXPECT_EQ(name_violations(root_).size(), 3u) << joined(name_violations(root_));
}

TEST_F(Planted, folders_without_a_readme_are_found) {
  plant("plugin/io/a.cc", "");
  plant("kernels/a.cc", "");
  plant("kernels/README.md", "");
  EXPECT_EQ(readme_violations(root_), std::vector<std::string>{"plugin/io: no README.md"});
}

}  // namespace
