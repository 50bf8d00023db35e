// Finding and opening: what is no plugin is refused in words, before anything of it is called.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "millpond/client/find_plugin.h"
#include "millpond/client/plugin.h"
#include "millpond/client/plugin_error.h"

namespace millpond::client {
namespace {

namespace fs = std::filesystem;

// The error that opening `path` ends with; code MILLPOND_OK where it opens.
Error opening(const fs::path& path) {
  try {
    Plugin::open(path);
  } catch (const Error& error) {
    return error;
  }
  return Error(MILLPOND_OK, "", "opened");
}

fs::path fake(const std::string& name) {
  return fs::path(MILLPOND_TEST_FAKES) / ("fake_" + name + ".so");
}

void expect_refused(const std::string& name, const std::string& field) {
  SCOPED_TRACE(name);
  ASSERT_TRUE(fs::exists(fake(name)));
  const Error error = opening(fake(name));
  EXPECT_EQ(error.code(), MILLPOND_E_VERSION) << error.what();
  EXPECT_EQ(error.field_name(), field) << error.what();
  EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
}

class Opening : public testing::Test {
 protected:
  void SetUp() override { unsetenv("MILLPOND_PLUGIN"); }
  void TearDown() override { unsetenv("MILLPOND_PLUGIN"); }
};

TEST_F(Opening, real_plugin_by_path) {
  const Plugin plugin = Plugin::open(MILLPOND_TEST_PLUGIN);
  EXPECT_EQ(plugin.identity().magic, MILLPOND_MAGIC);
  EXPECT_EQ(plugin.minor(), MILLPOND_ABI_MINOR);
  EXPECT_EQ(plugin.path(), fs::path(MILLPOND_TEST_PLUGIN));
  EXPECT_NE(plugin.description().find("ABI 1."), std::string::npos);
}

TEST_F(Opening, symbols_stay_local) {
  const Plugin plugin = Plugin::open(MILLPOND_TEST_PLUGIN);
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "millpond_open_v1"), nullptr);
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "millpond_plugin_identity"), nullptr);
}

TEST_F(Opening, path_in_the_environment) {
  ASSERT_EQ(setenv("MILLPOND_PLUGIN", MILLPOND_TEST_PLUGIN, 1), 0);
  EXPECT_EQ(find_plugin(), fs::path(MILLPOND_TEST_PLUGIN));
  EXPECT_NO_THROW(Plugin::open());
}

TEST_F(Opening, variable_that_names_nothing_is_final) {
  ASSERT_EQ(setenv("MILLPOND_PLUGIN", "/nowhere/libmillpond.so", 1), 0);
  const Error error = opening({});
  EXPECT_EQ(error.code(), MILLPOND_E_MISSING);
  EXPECT_NE(std::string(error.what()).find("MILLPOND_PLUGIN"), std::string::npos);
  EXPECT_NE(std::string(error.what()).find("/nowhere/libmillpond.so"), std::string::npos);
}

TEST_F(Opening, explicit_path_wins_over_the_environment) {
  ASSERT_EQ(setenv("MILLPOND_PLUGIN", "/nowhere/libmillpond.so", 1), 0);
  EXPECT_EQ(opening(MILLPOND_TEST_PLUGIN).code(), MILLPOND_OK);
}

TEST_F(Opening, beside_the_program) {
  const fs::path beside = fs::read_symlink("/proc/self/exe").parent_path() / "libmillpond.so";
  const bool there = fs::exists(beside);
  if (!there) fs::create_symlink(MILLPOND_TEST_PLUGIN, beside);
  EXPECT_EQ(find_plugin(), beside);
  if (!there) fs::remove(beside);
}

TEST_F(Opening, no_such_path) {
  const Error error = opening("/nowhere/libmillpond.so");
  EXPECT_EQ(error.code(), MILLPOND_E_MISSING);
  EXPECT_NE(std::string(error.what()).find("/nowhere/libmillpond.so"), std::string::npos);
}

TEST_F(Opening, directory) {
  EXPECT_EQ(opening(fs::temp_directory_path()).code(), MILLPOND_E_MISSING);
}

TEST_F(Opening, file_that_is_no_shared_object) {
  const fs::path path = fs::temp_directory_path() / ("no_object_" + std::to_string(getpid()));
  std::ofstream(path) << "not an ELF file\n";
  const Error error = opening(path);
  fs::remove(path);
  EXPECT_EQ(error.code(), MILLPOND_E_VERSION);
  EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
}

TEST_F(Opening, identity_is_checked_before_anything_is_called) {
  expect_refused("no_identity", "");
  expect_refused("magic", "identity.magic");
  expect_refused("type", "identity.header.type");
  expect_refused("short", "identity.header.size");
  expect_refused("pointer", "identity.pointer_bytes");
  expect_refused("endian", "identity.little_endian");
}

TEST_F(Opening, other_majors) {
  expect_refused("major_2", "identity.major_max");
  expect_refused("major_0", "identity.major_max");
  const Error newer = opening(fake("major_2"));
  EXPECT_EQ(newer.wanted(), MILLPOND_ABI_MAJOR);
  EXPECT_EQ(newer.got(), 2U);
  EXPECT_NE(std::string(newer.what()).find("Rebuild this program"), std::string::npos);
  EXPECT_NE(std::string(opening(fake("major_0")).what()).find("newer plugin"), std::string::npos);
}

TEST_F(Opening, negotiation_that_breaks_its_promises) {
  expect_refused("no_open", "");
  expect_refused("small_table", "table.header.size");
  expect_refused("minor_ahead", "table.minor");
}

TEST_F(Opening, refusal_in_the_plugins_own_words) {
  try {
    Plugin::open(fake("declines"));
    FAIL() << "it opened";
  } catch (const PluginError& error) {
    EXPECT_EQ(error.code(), MILLPOND_E_VERSION);
    EXPECT_EQ(error.field_name(), "host_minor");
    EXPECT_EQ(error.wanted(), 7U);
    EXPECT_NE(std::string(error.what()).find("hosts of minor 7 and later"), std::string::npos);
  }
}

}  // namespace
}  // namespace millpond::client
