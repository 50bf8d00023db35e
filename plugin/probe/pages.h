// Anonymous pages for a measurement, touched before the clock runs.
#ifndef MILLPOND_PLUGIN_PROBE_PAGES_H_
#define MILLPOND_PLUGIN_PROBE_PAGES_H_

#include <cstddef>
#include <cstdint>

namespace millpond::plugin {

class Pages {
 public:
  explicit Pages(std::uint64_t bytes);  // throws Error(E_MEMORY)
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  // Fills with pseudo-random bits that are small finite numbers when read as fp32 or bf16.
  void fill_noise();

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_PROBE_PAGES_H_
