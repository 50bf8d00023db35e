#include "plugin/core/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <climits>
#include <fstream>

namespace millpond::plugin {
namespace {

constexpr std::uint32_t kMostNodes = 1024;  // of any kernel
constexpr std::uint64_t kWordBits = sizeof(unsigned long) * CHAR_BIT;
constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kLooks = 64;

}  // namespace

std::optional<std::uint32_t> numa_node_of_pci(std::string address, const std::string& root) {
  std::string online;
  std::ifstream(root + "/sys/devices/system/node/online") >> online;
  // One node is a single number; several are "0-1" or "0,2".
  if (online.find_first_of("-,") == std::string::npos) return std::nullopt;
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::ifstream file(root + "/sys/bus/pci/devices/" + address + "/numa_node");
  long node = -1;  // also what the kernel says where the firmware does not say
  if (!(file >> node) || node < 0 || node >= static_cast<long>(kMostNodes)) return std::nullopt;
  return static_cast<std::uint32_t>(node);
}

int prefer_numa_node(void* begin, std::uint64_t bytes, std::uint32_t node) {
  if (node >= kMostNodes) return EINVAL;
  std::array<unsigned long, kMostNodes / kWordBits> mask{};
  mask[node / kWordBits] = 1UL << (node % kWordBits);
  // The kernel counts one bit less than it is given.
  const long result =
      syscall(SYS_mbind, begin, bytes, MPOL_PREFERRED, mask.data(), kMostNodes + 1, 0);
  return result == 0 ? 0 : errno;
}

PagesOnNode pages_on_node(void* begin, std::uint64_t bytes, std::uint32_t node) {
  std::array<void*, kLooks> pages{};
  std::array<int, kLooks> nodes{};
  const std::uint64_t all = bytes / kPage;
  const std::uint64_t looks = std::min<std::uint64_t>(kLooks, all);
  for (std::uint64_t i = 0; i < looks; ++i) {
    pages[i] = static_cast<std::byte*>(begin) + i * (all / looks) * kPage;
  }
  // Without target nodes it moves nothing and says where each page is.
  if (syscall(SYS_move_pages, 0, looks, pages.data(), nullptr, nodes.data(), 0) != 0) return {};
  PagesOnNode found;
  for (std::uint64_t i = 0; i < looks; ++i) {
    if (nodes[i] < 0) continue;  // not there
    ++found.looked_at;
    if (nodes[i] == static_cast<int>(node)) ++found.there;
  }
  return found;
}

}  // namespace millpond::plugin
