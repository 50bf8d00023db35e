#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>

#include "tests/layers/rules.h"

namespace millpond::layers {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestFile = 400;

const std::set<std::string> kCode = {".h", ".hpp", ".cc", ".c", ".cu", ".cuh", ".inc"};
const std::set<std::string> kLengthChecked = {".h",  ".hpp", ".cc",  ".c",     ".cu",   ".cuh",
                                              ".py", ".sh",  ".inc", ".cmake", ".proto"};
const char* const kTops[] = {"abi",           "kernels", "checkpoint", "plugin",
                             "host_adapters", "tests",   "examples",   "cmake"};

bool begins(const std::string& text, const std::string& with) {
  return text.compare(0, with.size(), with) == 0;
}

// Paths from the root with forward slashes, sorted. Build outputs and caches are not the tree's.
std::vector<std::string> files_below(const fs::path& root) {
  std::vector<std::string> files;
  for (const char* top : kTops) {
    if (!fs::exists(root / top)) continue;
    for (auto i = fs::recursive_directory_iterator(root / top);
         i != fs::recursive_directory_iterator(); ++i) {
      const std::string name = i->path().filename().string();
      if (i->is_directory() && (name[0] == '.' || name == "__pycache__" || name == "build")) {
        i.disable_recursion_pending();
      } else if (i->is_regular_file()) {
        files.push_back(fs::relative(i->path(), root).generic_string());
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

const FolderRule* rule_of(const std::string& path) {
  const FolderRule* best = nullptr;
  for (const FolderRule& rule : folder_rules()) {
    if (!begins(path, rule.folder + "/")) continue;
    if (best == nullptr || rule.folder.size() > best->folder.size()) best = &rule;
  }
  return best;
}

// The name between #include's delimiters, and the opening one; empty where the line has none.
std::string included(const std::string& line, char* delimiter) {
  std::size_t at = line.find_first_not_of(" \t");
  if (at == std::string::npos || line[at] != '#') return {};
  at = line.find_first_not_of(" \t", at + 1);
  if (at == std::string::npos || line.compare(at, 7, "include") != 0) return {};
  at = line.find_first_of("\"<", at);
  if (at == std::string::npos) return {};
  *delimiter = line[at];
  const std::size_t end = line.find(line[at] == '<' ? '>' : '"', at + 1);
  return end == std::string::npos ? std::string() : line.substr(at + 1, end - at - 1);
}

std::string place(const std::string& path, std::size_t line) {
  return path + ":" + std::to_string(line + 1) + ": ";
}

}  // namespace

std::vector<std::string> include_violations(const fs::path& root) {
  std::vector<std::string> found;
  for (const std::string& path : files_below(root)) {
    if (!kCode.count(fs::path(path).extension().string())) continue;
    const FolderRule* rule = rule_of(path);
    const std::vector<std::string> lines = lines_of(root / path);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      char delimiter = 0;
      const std::string name = included(lines[i], &delimiter);
      if (name.empty()) continue;
      const bool climbs = name.find("..") != std::string::npos;
      if (delimiter == '"') {
        const bool allowed =
            rule != nullptr && !climbs &&
            std::any_of(rule->quoted.begin(), rule->quoted.end(),
                        [&](const std::string& beginning) { return begins(name, beginning); });
        if (!allowed) found.push_back(place(path, i) + "may not include \"" + name + "\"");
      }
      for (const LibraryRule& library : library_rules()) {
        if (!begins(name, library.header)) continue;
        if (std::none_of(library.folders.begin(), library.folders.end(),
                         [&](const std::string& folder) { return begins(path, folder); })) {
          found.push_back(place(path, i) + "may not use " + name);
        }
      }
    }
  }
  return found;
}

// A host adapter loads the plugin; it never links a part of it.
std::vector<std::string> link_violations(const fs::path& root) {
  static const std::set<std::string> kAllowed = {"millpond_abi",     "millpond_handshake",
                                                 "millpond_client",  "millpond_flags",
                                                 "millpond_library", "millpond_test"};
  static const std::set<std::string> kForbidden = {
      "millpond",        "millpond_kernels", "millpond_checkpoint", "millpond_options",
      "millpond_guard",  "millpond_layout",  "millpond_io",         "millpond_pipeline",
      "millpond_device", "millpond_core",    "millpond_store",      "millpond_exports",
      "millpond_probe"};
  std::vector<std::string> found;
  for (const std::string& path : files_below(root)) {
    if (!begins(path, "host_adapters/") && !begins(path, "examples/")) continue;
    if (fs::path(path).filename() != "CMakeLists.txt") continue;
    const std::vector<std::string> lines = lines_of(root / path);
    bool links = false;  // inside target_link_libraries(...) or behind DEPENDS
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string code = lines[i].substr(0, lines[i].find('#'));
      std::string word;
      for (std::size_t j = 0; j <= code.size(); ++j) {
        const char c = j < code.size() ? code[j] : ' ';
        if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-') {
          word += c;
          continue;
        }
        if (word == "target_link_libraries" || word == "DEPENDS") links = true;
        if (links && kForbidden.count(word) && !kAllowed.count(word)) {
          found.push_back(place(path, i) + "links " + word + " of the plugin");
        }
        if (c == ')') links = false;
        word.clear();
      }
    }
  }
  return found;
}

std::vector<std::string> length_violations(const fs::path& root) {
  std::vector<std::string> found;
  for (const std::string& path : files_below(root)) {
    const fs::path file(path);
    if (!kLengthChecked.count(file.extension().string()) && file.filename() != "CMakeLists.txt") {
      continue;
    }
    const std::size_t lines = lines_of(root / path).size();
    if (lines >= kLongestFile) {
      found.push_back(path + ": " + std::to_string(lines) + " lines; a file has fewer than " +
                      std::to_string(kLongestFile));
    }
  }
  return found;
}

std::vector<std::string> name_violations(const fs::path& root) {
  static const std::set<std::string> kVague = {"util",     "utils",  "utility", "utilities",
                                               "common",   "helper", "helpers", "manager",
                                               "managers", "misc",   "stuff"};
  std::vector<std::string> found;
  for (const std::string& path : files_below(root)) {
    std::string word;
    for (const char c : path + ".") {
      if (std::isalpha(static_cast<unsigned char>(c))) {
        word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        continue;
      }
      if (kVague.count(word)) found.push_back(path + ": \"" + word + "\" says nothing");
      word.clear();
    }
  }
  return found;
}

// Every folder with code says in a README what lives in it. Folders of tests share tests/README.md.
std::vector<std::string> readme_violations(const fs::path& root) {
  std::set<std::string> folders;
  for (const std::string& path : files_below(root)) {
    if (!kCode.count(fs::path(path).extension().string())) continue;
    std::string folder = fs::path(path).parent_path().generic_string();
    if (begins(folder, "tests")) folder = "tests";
    folder = folder.substr(0, folder.find("/include"));
    if (begins(folder, "abi")) folder = "abi";
    folders.insert(folder);
  }
  std::vector<std::string> found;
  for (const std::string& folder : folders) {
    if (!fs::exists(root / folder / "README.md")) found.push_back(folder + ": no README.md");
  }
  return found;
}

}  // namespace millpond::layers
