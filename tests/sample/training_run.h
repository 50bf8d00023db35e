// A small run through the real plugin, in the test's own process.
#ifndef MILLPOND_TESTS_SAMPLE_TRAINING_RUN_H_
#define MILLPOND_TESTS_SAMPLE_TRAINING_RUN_H_

#include "host_adapters/processes/meeting.h"
#include "host_adapters/sample/arguments.h"
#include "host_adapters/sample/place.h"
#include "host_adapters/sample/progress.h"
#include "host_adapters/sample/trainer.h"
#include "tests/sample/sample_text.h"

namespace millpond::sample {

inline Arguments small_run(const TestDirectory& directory, Mode mode) {
  Arguments a;
  a.mode = mode;
  a.text = directory.text();
  a.scratch = {directory.scratch()};
  a.plugin = MILLPOND_TEST_PLUGIN;
  a.shape = {4, 16, 96, 2};
  a.batch = 32;
  a.steps = 12;
  a.hyper.warmup = 4;
  a.evaluations = 1;
  a.evaluation_bytes = 512;
  a.threads = 2;
  a.tile_elements = 4096;
  a.block_elements = 4096;
  return a;
}

inline RunResult run(const Arguments& arguments) {
  Progress progress(true);
  processes::Meeting meeting(1, kSlotBytes, 60.0);
  return train(arguments, Place(arguments, meeting, 0), progress);
}

}  // namespace millpond::sample

#endif  // MILLPOND_TESTS_SAMPLE_TRAINING_RUN_H_
