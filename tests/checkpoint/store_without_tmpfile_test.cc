// Scratch files that cannot be linked, because the filesystem has no O_TMPFILE and they lost their
// names: the checkpoint gets clones of them where the filesystem has those, else copies.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>

#include "tests/checkpoint/saved_training.h"
#include "tests/io/sandbox.h"

namespace millpond::tests {
namespace {

using sandbox::require;

// A save, steps afterwards, and what is in the save then; in a child, where checks of gtest do not
// reach out.
void save_and_go_on(const std::string& directory, const std::string& wanted) {
  sandbox::refuse({{SYS_openat, EOPNOTSUPP, 2, O_TMPFILE & ~O_DIRECTORY}});
  const std::string scratch = directory + "/scratch", path = directory + "/saved";
  std::filesystem::create_directories(scratch);
  Status status;
  Job job(scratch, kSmallTiles);
  Training training(job, "s", usual_parameters());
  require(training.bind(&status) == MILLPOND_OK, status.text());
  training.train(1, 2);
  require(save(training, path, &status) == MILLPOND_OK, status.text());
  require(job.log_has(wanted), job.log.back());
  const std::vector<PlainParameter> saved = training.plain;
  training.train(3, 5);
  require((training.models_differ() + training.state_differs()).empty(), training.state_differs());
  require(load(training, path, &status) == MILLPOND_OK, status.text());
  take_over(training, saved);
  require((training.models_differ() + training.state_differs()).empty(), training.state_differs());
  require(save(training, path, &status) == MILLPOND_OK, status.text());
}

TEST(WithoutTmpfile, a_save_is_copied_where_nothing_can_be_cloned) {
  const TemporaryDirectory directory;
  MILLPOND_IN_CHILD([&] {
    const std::string disk = directory.path() + "/disk";
    sandbox::mount_here("tmpfs", disk, "size=16m");
    save_and_go_on(disk, " 0 linked or cloned");
  });
}

TEST(WithoutTmpfile, a_save_is_cloned_where_the_filesystem_can) {
  const TemporaryDirectory directory;
  MILLPOND_IN_CHILD([&] {
    const std::string disk = directory.path() + "/disk";
    sandbox::mount_loop("xfs", disk, 320);
    save_and_go_on(disk, " 0 copied");
  });
}

}  // namespace
}  // namespace millpond::tests
