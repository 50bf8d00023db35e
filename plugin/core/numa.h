// Which of a machine's memories is near to a device, and where pages lie. Raw system calls: the
// plugin needs libc alone at run time.
#ifndef MILLPOND_PLUGIN_CORE_NUMA_H_
#define MILLPOND_PLUGIN_CORE_NUMA_H_

#include <cstdint>
#include <optional>
#include <string>

namespace millpond::plugin {

// The memory node that a PCI device is attached to, as sysfs has it. `address`: domain, bus, device
// and function, "0000:1b:00.0", in either case of letters. Nothing where the machine has one node
// or does not say: pages are then where they should be. `root` is put before /sys, for tests.
std::optional<std::uint32_t> numa_node_of_pci(std::string address, const std::string& root = "");

// Pages of the range that are touched from now on come from the node while it has free ones, and
// from others after that: this never makes memory run out. Page-aligned. 0, or an errno: EPERM and
// ENOSYS where a container forbids it.
int prefer_numa_node(void* begin, std::uint64_t bytes, std::uint32_t node);

// Of up to 64 pages that are spread over the range: how many there are, and how many of them lie on
// the node. Nothing looked at where the kernel does not tell.
struct PagesOnNode {
  std::uint32_t looked_at = 0;
  std::uint32_t there = 0;
};
PagesOnNode pages_on_node(void* begin, std::uint64_t bytes, std::uint32_t node);

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_CORE_NUMA_H_
