// The golden layout against the headers' own text, the identity and the changelog. (That compilers
// agree with it is layout_test.sh.)
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "plugin/exports/identity.h"

namespace {

const std::filesystem::path kRoot = MILLPOND_SOURCE_ROOT;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string without_comments(const std::string& text) {
  std::string code;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "/*") == 0) {
      i = text.find("*/", i) + 1;
    } else {
      code += text[i];
    }
  }
  return code;
}

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The words that follow each `prefix`, where `suffix` follows the word.
std::vector<std::string> words_between(const std::string& text, const std::string& prefix,
                                       const std::string& suffix) {
  std::vector<std::string> found;
  for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at)) {
    at += prefix.size();
    size_t end = at;
    while (end < text.size() && in_word(text[end])) ++end;
    if (end > at && text.compare(end, suffix.size(), suffix) == 0) {
      found.push_back(text.substr(at, end - at));
    }
  }
  return found;
}

// Nothing in the headers may be missing from the golden text. With the printer's own check that no
// byte of a listed struct is left out, a change of the headers cannot pass unseen.
TEST(GoldenLayout, holds_every_struct_constant_and_function_type) {
  const std::string golden = text_of(kRoot / "abi/layout.golden");
  std::set<std::string> listed;
  for (const char* kind : {"\nstruct ", "\nnumber ", "\ntext ", "\nfunction "}) {
    for (const std::string& name : words_between(golden, kind, " ")) listed.insert(name);
  }
  size_t seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "abi/include/millpond")) {
    if (entry.path().extension() != ".h") continue;
    const std::string code = without_comments(text_of(entry.path()));
    std::vector<std::string> names = words_between(code, "typedef struct ", " {");
    for (const std::string& name : words_between(code, "#define ", " ")) {
      if (name != "MILLPOND_EXPORT") names.push_back(name);  // an attribute, not a value
    }
    for (const std::string& name : words_between(code, "(*", ")(")) {
      // Function types are typedefs named so; members of structs are not.
      if (name.size() > 3 && name.compare(name.size() - 3, 3, "_fn") == 0) names.push_back(name);
    }
    for (const std::string& name : names) {
      ++seen;
      EXPECT_TRUE(listed.count(name)) << name << " of " << entry.path().filename()
                                      << " is not in abi/layout.golden: add it to abi/layout/";
    }
  }
  EXPECT_GT(seen, 100u);
  EXPECT_EQ(seen, listed.size()) << "abi/layout.golden lists what no header has";
}

std::string hex(const uint8_t* bytes, size_t count) {
  std::ostringstream text;
  for (size_t i = 0; i < count; ++i) {
    text << "0123456789abcdef"[bytes[i] >> 4] << "0123456789abcdef"[bytes[i] & 15];
  }
  return text.str();
}

// abi/CHANGELOG.md's newest entry is of the headers' version and names the golden text's digest, so
// a changed layout without an entry fails here.
TEST(GoldenLayout, the_changelog_speaks_of_this_layout) {
  const std::string changelog = text_of(kRoot / "abi/CHANGELOG.md");
  std::vector<std::string> versions, digests;
  std::istringstream lines(changelog);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("## ", 0) == 0) versions.push_back(line.substr(3, line.find(' ', 3) - 3));
    if (line.rfind("Layout: `", 0) == 0) digests.push_back(line.substr(9, 64));
  }
  ASSERT_FALSE(versions.empty());
  ASSERT_EQ(versions.size(), digests.size()) << "every version names its layout's digest";
  EXPECT_EQ(versions[0],
            std::to_string(MILLPOND_ABI_MAJOR) + "." + std::to_string(MILLPOND_ABI_MINOR));
  EXPECT_EQ(digests[0], hex(millpond::plugin::identity().layout_digest, 32))
      << "abi/layout.golden changed: say in abi/CHANGELOG.md what and why";
  EXPECT_EQ(std::set<std::string>(digests.begin(), digests.end()).size(), digests.size())
      << "two versions cannot have one layout";
}

TEST(Identity, is_whole) {
  const millpond_identity& identity = millpond::plugin::identity();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(&identity.magic), 8), "MILLPOND");
  EXPECT_EQ(identity.header.size, sizeof(millpond_identity));
  EXPECT_EQ(identity.header.type, MILLPOND_TYPE_IDENTITY);
  EXPECT_LE(identity.major_min, identity.major_max);
  EXPECT_EQ(identity.major_max, MILLPOND_ABI_MAJOR);
  EXPECT_EQ(identity.minor, MILLPOND_ABI_MINOR);
  EXPECT_EQ(identity.pointer_bytes, 8);
  EXPECT_EQ(identity.little_endian, 1);
  EXPECT_STREQ(identity.name, "millpond");
  EXPECT_EQ(std::string(identity.version), MILLPOND_PROJECT_VERSION);
  EXPECT_EQ(std::string(identity.build_id).find('/'), std::string::npos)
      << "a path of the building machine";
  EXPECT_GT(identity.descriptor_set_bytes, 1000u);
}

}  // namespace
