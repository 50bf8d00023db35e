// Small files that are there whole or not at all, also after a kill or a loss of power.
#ifndef MILLPOND_HOST_ADAPTERS_SAMPLE_DURABLE_FILE_H_
#define MILLPOND_HOST_ADAPTERS_SAMPLE_DURABLE_FILE_H_

#include <filesystem>
#include <string>
#include <string_view>

namespace millpond::sample {

// Under a temporary name, synced, renamed to `path`, the directory synced. Throws Error.
void write_durably(const std::filesystem::path& path, std::string_view bytes);
void sync_directory(const std::filesystem::path& path);

std::string read_whole(const std::filesystem::path& path);

}  // namespace millpond::sample

#endif  // MILLPOND_HOST_ADAPTERS_SAMPLE_DURABLE_FILE_H_
