#include "plugin/probe/directory.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "millpond/error.hpp"
#include "plugin/io/os_error.h"
#include "plugin/io/scratch.h"
#include "plugin/io/sizes.h"

namespace millpond::plugin {
namespace {

struct Filesystem {
  std::uint64_t magic;  // statfs(2)
  const char* name;
  enum Kind : std::uint8_t { kDrive, kMemory, kNetwork } kind;
};
constexpr Filesystem kFilesystems[] = {
    {0xef53, "ext4", Filesystem::kDrive},       {0x58465342, "xfs", Filesystem::kDrive},
    {0x9123683e, "btrfs", Filesystem::kDrive},  {0x2fc12fc1, "zfs", Filesystem::kDrive},
    {0xf2f52010, "f2fs", Filesystem::kDrive},   {0x794c7630, "overlay", Filesystem::kDrive},
    {0x01021994, "tmpfs", Filesystem::kMemory}, {0x858458f6, "ramfs", Filesystem::kMemory},
    {0x6969, "nfs", Filesystem::kNetwork},      {0x0bd00bd0, "lustre", Filesystem::kNetwork},
    {0x47504653, "gpfs", Filesystem::kNetwork}, {0x00c36400, "ceph", Filesystem::kNetwork},
    {0xff534d42, "cifs", Filesystem::kNetwork}, {0xfe534d42, "smb2", Filesystem::kNetwork},
    {0x65735546, "fuse", Filesystem::kNetwork}, {0x01021997, "9p", Filesystem::kNetwork},
};

Check judge_filesystem(DirectoryFacts& facts) {
  struct statfs answer {};
  Check check{"filesystem", CheckVerdict::kOk, "", ""};
  if (statfs(facts.path.c_str(), &answer) != 0) {
    check.verdict = CheckVerdict::kWarning;
    check.found = "unknown (" + errno_text(errno) + ")";
    return check;
  }
  const auto magic = static_cast<std::uint64_t>(answer.f_type) & 0xffffffffull;
  const auto* known = std::find_if(std::begin(kFilesystems), std::end(kFilesystems),
                                   [&](const Filesystem& f) { return f.magic == magic; });
  if (known == std::end(kFilesystems)) {
    char text[24];
    std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(magic));
    facts.filesystem = text;
    check.found = facts.filesystem;
    return check;
  }
  facts.filesystem = known->name;
  check.found = known->name;
  if (known->kind == Filesystem::kMemory) {
    check.verdict = CheckVerdict::kWarning;
    check.found += ": this is memory, not a drive";
    check.remedy =
        "Name a directory on a local NVMe drive: here the state takes memory all the same.";
  } else if (known->kind == Filesystem::kNetwork) {
    check.verdict = CheckVerdict::kWarning;
    check.found += ": not a local drive";
    check.remedy = "Name a directory on a local NVMe drive: state passes twice in every step.";
  }
  return check;
}

// What becomes of an anonymous file when a checkpoint is made of it.
void try_checkpoint_ways(ScratchRoot& root, DirectoryFacts& facts) {
  const auto add = [&](const std::string& text) {
    facts.reason += (facts.reason.empty() ? "" : "; ") + text;
  };
  const Fd from = root.create(kPage, "from");
  if (facts.tmpfile) {
    const std::string name = root.path() + "/linked";
    const std::string self = "/proc/self/fd/" + std::to_string(from.get());
    facts.link = linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
    if (!facts.link) add("link: " + errno_text(errno));
    unlink(name.c_str());
  }
  const Fd to = root.create(kPage, "to");
  facts.reflink = ioctl(to.get(), FICLONE, from.get()) == 0;
  if (!facts.reflink) add("reflink: " + errno_text(errno));
}

void judge_abilities(DirectoryFacts& facts) {
  facts.checks.push_back(
      facts.direct
          ? Check{"o_direct", CheckVerdict::kOk, "works", ""}
          : Check{"o_direct", CheckVerdict::kWarning,
                  "does not work: transfers pass the page cache",
                  "Use ext4 or XFS on a local drive: without O_DIRECT every byte is copied once "
                  "more."});
  facts.checks.push_back(
      facts.tmpfile
          ? Check{"o_tmpfile", CheckVerdict::kOk, "works: a killed run leaves nothing behind", ""}
          : Check{"o_tmpfile", CheckVerdict::kWarning,
                  "does not work: named files, which the next run removes after a kill",
                  "Use ext4, XFS or btrfs; saves are copied from here."});
  Check reflink{"reflink", CheckVerdict::kOk, "", ""};
  if (facts.reflink) {
    reflink.found = "works";
  } else if (facts.link) {
    reflink.found = "does not work; files can be linked, so saves on this filesystem copy nothing";
  } else {
    reflink.verdict = CheckVerdict::kWarning;
    reflink.found = "neither reflinks nor links work: saves copy in the background";
    reflink.remedy = "XFS and btrfs can clone files, ext4 can link them.";
  }
  facts.checks.push_back(reflink);
}

Check judge_space(const DirectoryRequest& request, const DirectoryFacts& facts) {
  Check check{"free_space", CheckVerdict::kOk,
              binary_size(facts.free_bytes) + " of " + binary_size(facts.total_bytes) + " free",
              ""};
  const std::uint64_t least = std::max(request.needed_bytes, kPage);
  if (request.needed_bytes != 0)
    check.found += ", " + binary_size(request.needed_bytes) + " needed";
  if (facts.free_bytes < least) {
    check.verdict = CheckVerdict::kFailed;
    check.remedy = "Free space there, or name further directories in \"scratch\".";
  } else if (facts.free_bytes < 2 * request.needed_bytes) {
    check.verdict = CheckVerdict::kWarning;
    check.remedy = "A save on this filesystem needs the same space again.";
  }
  return check;
}

}  // namespace

DirectoryFacts look_at_directory(const DirectoryRequest& request) {
  DirectoryFacts facts;
  facts.path = request.path;
  try {
    ScratchRoot root(request.path, request.direct == "true" ? "auto" : request.direct);
    facts.direct = root.ability().direct;
    facts.tmpfile = root.ability().tmpfile;
    facts.reason = root.ability().reason;
    try_checkpoint_ways(root, facts);
    facts.usable = true;
  } catch (const Error& error) {
    facts.reason = error.what();
    facts.checks.push_back({"directory", CheckVerdict::kFailed, error.what(),
                            "Name an existing directory that this user may write to."});
  }
  struct statvfs space {};
  if (statvfs(request.path.c_str(), &space) == 0) {
    facts.total_bytes = std::uint64_t{space.f_blocks} * space.f_frsize;
    facts.free_bytes = std::uint64_t{space.f_bavail} * space.f_frsize;
  }
  if (!facts.usable) return facts;
  facts.checks.push_back(
      {"directory", CheckVerdict::kOk, "files can be made in " + request.path, ""});
  facts.checks.push_back(judge_filesystem(facts));
  judge_abilities(facts);
  if (request.direct == "true" && !facts.direct) {
    for (Check& check : facts.checks) {
      if (check.name == "o_direct") check.verdict = CheckVerdict::kFailed;
    }
  }
  facts.checks.push_back(judge_space(request, facts));
  return facts;
}

}  // namespace millpond::plugin
