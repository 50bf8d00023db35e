// Who may include whom, and what else the tree's files must keep to. Everything here is text: the
// test needs no compiler.
#ifndef MILLPOND_TESTS_LAYERS_RULES_H_
#define MILLPOND_TESTS_LAYERS_RULES_H_

#include <filesystem>
#include <string>
#include <vector>

namespace millpond::layers {

// The folder with the longest matching name decides. `quoted` are the beginnings that
// #include "..." may have there. A folder that no rule names may include nothing.
struct FolderRule {
  std::string folder;
  std::vector<std::string> quoted;
};
const std::vector<FolderRule>& folder_rules();

// The beginning of a header's name, in quotes or angle brackets, and the only folders that may use
// it.
struct LibraryRule {
  std::string header;
  std::vector<std::string> folders;
};
const std::vector<LibraryRule>& library_rules();

// Each returns one line a violation, "path:line: what is wrong".
std::vector<std::string> include_violations(const std::filesystem::path& root);
std::vector<std::string> link_violations(const std::filesystem::path& root);
std::vector<std::string> length_violations(const std::filesystem::path& root);
std::vector<std::string> name_violations(const std::filesystem::path& root);
std::vector<std::string> readme_violations(const std::filesystem::path& root);

}  // namespace millpond::layers

#endif  // MILLPOND_TESTS_LAYERS_RULES_H_
