// The plugin, linked into the test, whose I/O engine fails on purpose. faulty_plugin.cc has the
// place of plugin/io/choose_engine.cc; everything else is what libmillpond.so is made of.
#ifndef MILLPOND_TESTS_STORE_FAULTY_PLUGIN_H_
#define MILLPOND_TESTS_STORE_FAULTY_PLUGIN_H_

#include "tests/io/fault_engine.h"

namespace millpond::tests {

// The engine of the runtime that was made last; only while that runtime is there.
plugin::FaultEngine& faults();

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_STORE_FAULTY_PLUGIN_H_
