// The near memory of a device: from made-up /sys trees, and asked of the real kernel. The policy is
// read back with get_mempolicy, which the plugin does not use.
#include "plugin/core/numa.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "plugin/pipeline/region.h"

namespace millpond::plugin {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBytes = 4 << 20;

class Machine : public testing::Test {
 protected:
  Machine() {
    std::string name = fs::temp_directory_path() / "millpond-numa-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~Machine() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void device(const std::string& address, const std::string& node) {
    write("sys/bus/pci/devices/" + address + "/numa_node", node);
  }
  std::optional<std::uint32_t> node_of(const std::string& address) const {
    return numa_node_of_pci(address, root_.string());
  }

 private:
  fs::path root_;
};

TEST_F(Machine, of_several_nodes_says_which_a_device_is_near_to) {
  write("sys/devices/system/node/online", "0-1");
  device("0000:1b:00.0", "1");
  device("0000:2c:00.0", "0");
  device("0000:3d:00.0", "-1");
  EXPECT_EQ(node_of("0000:1B:00.0"), 1U) << "CUDA writes capitals";
  EXPECT_EQ(node_of("0000:2c:00.0"), 0U);
  EXPECT_EQ(node_of("0000:3d:00.0"), std::nullopt) << "the firmware does not say";
  EXPECT_EQ(node_of("0000:4e:00.0"), std::nullopt);
  EXPECT_EQ(node_of(""), std::nullopt);
  write("sys/devices/system/node/online", "0,2");
  EXPECT_EQ(node_of("0000:2c:00.0"), 0U);
}

TEST_F(Machine, of_one_node_or_without_any_has_nothing_to_choose) {
  device("0000:1b:00.0", "0");
  EXPECT_EQ(node_of("0000:1b:00.0"), std::nullopt);
  write("sys/devices/system/node/online", "0");
  EXPECT_EQ(node_of("0000:1b:00.0"), std::nullopt);
}

// Looks at the region while it is prepared and asks for node 0.
struct AskingPin : RegionPin {
  void prepare(std::byte* data, std::uint64_t bytes) override {
    std::vector<unsigned char> resident(bytes / kPage);
    ASSERT_EQ(mincore(data, bytes, resident.data()), 0);
    for (const unsigned char page : resident) touched += page & 1U;
    error = prefer_numa_node(data, bytes, 0);
  }
  void attach(std::byte*, std::uint64_t) override {}
  void detach() noexcept override {}
  int error = -1;
  std::uint64_t touched = 0;
};

TEST(Numa, a_region_is_asked_for_before_its_pages_are_there) {
  AskingPin pin;
  ThreadPool pool(2);
  Region region;
  region.map(kBytes, pool, &pin);
  EXPECT_EQ(pin.touched, 0U);
  if (pin.error == EPERM || pin.error == ENOSYS) {
    GTEST_SKIP() << "mbind is not allowed here: " << std::strerror(pin.error);
  }
  ASSERT_EQ(pin.error, 0) << std::strerror(pin.error);
  int mode = -1;
  unsigned long nodes[16] = {};
  ASSERT_EQ(syscall(SYS_get_mempolicy, &mode, nodes, sizeof(nodes) * 8, region.data() + kBytes / 2,
                    MPOL_F_ADDR),
            0)
      << std::strerror(errno);
  EXPECT_EQ(mode, MPOL_PREFERRED);
  EXPECT_EQ(nodes[0], 1UL);
}

TEST(Numa, pages_are_counted_on_one_node_only) {
  ThreadPool pool(1);
  Region region;
  region.map(kBytes, pool);
  const PagesOnNode first = pages_on_node(region.data(), kBytes, 0);
  if (first.looked_at == 0) GTEST_SKIP() << "move_pages is not allowed here";
  EXPECT_EQ(first.looked_at, 64U);
  EXPECT_EQ(pages_on_node(region.data(), 3 * kPage, 0).looked_at, 3U);
  EXPECT_EQ(pages_on_node(region.data(), kBytes, 1023).there, 0U);
  std::string online;
  std::ifstream("/sys/devices/system/node/online") >> online;
  if (online == "0") {
    EXPECT_EQ(first.there, 64U);
  }
}

TEST(Numa, what_the_kernel_cannot_do_is_an_errno) {
  alignas(kPage) static std::byte page[kPage];
  EXPECT_NE(prefer_numa_node(page, kPage, 1000), 0) << "there is no such node";
  EXPECT_EQ(prefer_numa_node(page, kPage, 1024), EINVAL);
}

}  // namespace
}  // namespace millpond::plugin
