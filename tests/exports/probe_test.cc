// probe/1 as a host calls it: JSON in, JSON out, errors that name the key.
#include "millpond/probe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/store/training.h"

namespace millpond::tests {
namespace {

using Json = nlohmann::json;

const millpond_ext_probe& probes() {
  return *static_cast<const millpond_ext_probe*>(extension(MILLPOND_EXT_PROBE_1));
}

struct Answer {
  std::int32_t code = -1;
  Status status;
  std::string text;
  int pieces = 0;
  Json json() const { return Json::parse(text); }
};

Answer ask(millpond_files_fn entry, const std::string& request,
           millpond_runtime* runtime = nullptr) {
  Answer answer;
  const millpond_sink_fn sink = [](void* context, millpond_str piece) {
    auto* into = static_cast<Answer*>(context);
    into->text.append(piece.ptr, piece.len);
    ++into->pieces;
  };
  answer.code = entry(runtime, str(request), sink, &answer, &answer.status);
  return answer;
}

const std::string kSmall = R"("file_bytes": 4194304, "transfer_bytes": 65536)";

TEST(ProbeMachine, needs_neither_runtime_nor_request) {
  const Answer answer = ask(probes().machine, "");
  ASSERT_EQ(answer.code, MILLPOND_OK) << answer.status.text();
  EXPECT_EQ(answer.pieces, 1);
  const Json machine = answer.json();
  EXPECT_GE(machine["processors"], 1);
  EXPECT_GT(machine["available_bytes"], 1u << 20);
  EXPECT_TRUE(machine["cuda"]["devices"].is_array());
  EXPECT_TRUE(machine["cuda"]["built"].is_boolean());
  for (const Json& check : machine["checks"]) {
    for (const char* key : {"name", "verdict", "found", "remedy"}) {
      EXPECT_TRUE(check[key].is_string()) << key;
    }
  }
}

TEST(ProbeDirectory, finds_by_trying_and_leaves_nothing) {
  const TemporaryDirectory scratch;
  const Answer answer = ask(probes().directory,
                            R"({"directory": ")" + scratch.path() + R"(", "needed_bytes": 4096})");
  ASSERT_EQ(answer.code, MILLPOND_OK) << answer.status.text();
  const Json directory = answer.json();
  EXPECT_EQ(directory["path"], scratch.path());
  EXPECT_EQ(directory["usable"], true);
  EXPECT_GT(directory["free_bytes"], 0);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
  // An absent one is a finding, not a failed call.
  const Answer absent = ask(probes().directory, R"({"directory": "/nonexistent/scratch"})");
  ASSERT_EQ(absent.code, MILLPOND_OK) << absent.status.text();
  EXPECT_EQ(absent.json()["usable"], false);
  EXPECT_EQ(absent.json()["checks"][0]["verdict"], "failed");
}

TEST(ProbeDirectory, a_runtimes_first_scratch_directory_is_the_default) {
  const TemporaryDirectory scratch;
  Job job(scratch.path());
  const Answer answer = ask(probes().directory, "", job.runtime);
  ASSERT_EQ(answer.code, MILLPOND_OK) << answer.status.text();
  EXPECT_EQ(answer.json()["path"], scratch.path());
  const Answer without = ask(probes().directory, "");
  EXPECT_EQ(without.code, MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(without.status.field, "request.directory");
}

std::ptrdiff_t entries_of(const std::string& directory) {
  return std::distance(std::filesystem::directory_iterator(directory), {});
}

TEST(ProbeCeilings, a_kept_file_stays_for_the_same_request_and_goes_with_the_runtime) {
  const TemporaryDirectory scratch;
  {
    Job job(scratch.path());
    const auto measure = [&](const std::string& file, const std::string& more) {
      return ask(
          probes().ceilings,
          R"({"measure": ["drive"], "read_shares": [0.5], "move_bytes": 1048576, "file": ")" +
              file + "\"" + more + "}",
          job.runtime);
    };
    for (const char* size : {"4194304", "4194304", "8388608"}) {
      const Answer answer = measure("kept", std::string(R"(, "file_bytes": )") + size);
      ASSERT_EQ(answer.code, MILLPOND_OK) << answer.status.text();
      EXPECT_EQ(entries_of(scratch.path()), 1) << size;  // never a second one beside it
    }
    ASSERT_EQ(measure("removed", R"(, "file_bytes": 4194304)").code, MILLPOND_OK);
    EXPECT_EQ(entries_of(scratch.path()), 1);
    const Answer unknown = measure("lost", "");
    EXPECT_EQ(unknown.code, MILLPOND_E_ARGUMENT);
    EXPECT_STREQ(unknown.status.field, "request.file");
  }
  EXPECT_EQ(entries_of(scratch.path()), 0);
}

TEST(ProbeCeilings, rates_are_bytes_by_seconds_in_the_shares_asked_for) {
  const TemporaryDirectory scratch;
  Job job(scratch.path());
  const Answer answer =
      ask(probes().ceilings, "{" + kSmall + R"(, "move_bytes": 8388608, "measure": ["drive"],
                            "read_shares": [1, 0, 0.25]})",
          job.runtime);
  ASSERT_EQ(answer.code, MILLPOND_OK) << answer.status.text();
  const Json document = answer.json();
  EXPECT_FALSE(document.contains("update"));
  const Json rates = document["drive"]["rates"];
  ASSERT_EQ(rates.size(), 3u);
  const std::uint64_t read[] = {8388608, 0, 8388608 / 4};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(rates[i]["bytes_read"], read[i]);
    EXPECT_EQ(rates[i]["bytes_written"], 8388608 - read[i]);
    const double rate = 8388608 / rates[i]["seconds"].get<double>();
    EXPECT_NEAR(rates[i]["bytes_per_s"].get<double>(), rate, rate * 1e-6);
  }
  EXPECT_EQ(document["drive"]["checks"][0]["name"], "drive");
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(ProbeCeilings, the_update_counts_its_bytes) {
  const Answer answer = ask(probes().ceilings, R"({"measure": ["update"], "elements": 262144,
                            "moments": "bf16", "threads": 2, "rounds": 1})");
  ASSERT_EQ(answer.code, MILLPOND_OK) << answer.status.text();
  const Json update = answer.json()["update"];
  // main and both moments both ways, gradient, bf16 model
  EXPECT_EQ(update["bytes"], 262144 * (8 + 4 + 4 + 4 + 2));
  EXPECT_EQ(update["threads"], 2);
  EXPECT_GT(update["update_bytes_per_s"], 0);
  EXPECT_GT(update["update_ceiling_bytes_per_s"], 0);
}

TEST(ProbeCeilings, takes_the_runtimes_formats) {
  const TemporaryDirectory scratch;
  Job job(scratch.path(), R"("moments": "bf16", "update_threads": 1)");
  const Answer answer =
      ask(probes().ceilings, R"({"measure": ["update"], "elements": 262144, "rounds": 1})",
          job.runtime);
  ASSERT_EQ(answer.code, MILLPOND_OK) << answer.status.text();
  EXPECT_EQ(answer.json()["update"]["bytes"], 262144 * 22);
  EXPECT_EQ(answer.json()["update"]["threads"], 1);
}

TEST(ProbeCeilings, progress_may_cancel) {
  const TemporaryDirectory scratch;
  Job job(scratch.path());
  job.cancel = true;
  const Answer answer =
      ask(probes().ceilings, "{" + kSmall + R"(, "measure": ["drive"]})", job.runtime);
  EXPECT_EQ(answer.code, MILLPOND_E_CANCELLED) << answer.status.text();
  EXPECT_EQ(answer.pieces, 0);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(ProbeRequests, wrong_ones_name_the_key) {
  struct Wrong {
    const char* request;
    const char* field;
    const char* part;
  };
  const Wrong wrongs[] = {
      {"[]", "request", "not a JSON object"},
      {"{", "request", "not a JSON object"},
      {R"({"transfer_byte": 4096})", "request.transfer_byte", "transfer_bytes"},
      {R"({"measure": "drive"})", "request.measure", "drive"},
      {R"({"measure": ["disk"]})", "request.measure", "drive"},
      {R"({"measure": []})", "request.measure", "drive"},
      {R"({"read_shares": [1.5]})", "request.read_shares", "from 0 to 1"},
      {R"({"elements": -1})", "request.elements", "an integer from 1"},
      {R"({"elements": "many"})", "request.elements", "an integer from 1"},
      {R"({"io_engine": "aio"})", "request.io_engine", "io_uring"},
      {R"({"direct": "yes"})", "request.direct", "true or false"},
      {R"({"moments": "fp7"})", "request.moments", "fp8_e4m3"},
      {R"({"transfer_bytes": 5000})", "request.transfer_bytes", "4096"},
      {R"({"measure": ["update", "cuda_update"]})", "request.measure", "one at a time"},
      {R"({"measure": ["bus"], "bus_directions": ["sideways"]})", "request.bus_directions", "both"},
      {R"({"shards": 0})", "request.shards", "an integer from 1"},
      {R"({"pin_bytes": 0})", "request.pin_bytes", "an integer from 1"},
      {R"({"measure": ["update"], "arithmetic": "host/1"})", "request.arithmetic", "arithmetic"},
  };
  const TemporaryDirectory scratch;
  Job job(scratch.path());
  for (const Wrong& wrong : wrongs) {
    const Answer answer = ask(probes().ceilings, wrong.request, job.runtime);
    EXPECT_EQ(answer.code, MILLPOND_E_ARGUMENT) << wrong.request;
    EXPECT_STREQ(answer.status.field, wrong.field) << wrong.request;
    EXPECT_NE(std::string(answer.status.message).find(wrong.part), std::string::npos)
        << answer.status.text();
    EXPECT_EQ(answer.pieces, 0);
  }
  Status status;
  EXPECT_EQ(probes().machine(nullptr, str(""), nullptr, nullptr, &status), MILLPOND_E_ARGUMENT);
  EXPECT_STREQ(status.field, "sink");
}

// tests/python/test_cuda_store.py measures where there is a device.
TEST(ProbeRequests, a_device_that_is_not_there_is_said_so) {
  for (const std::string what : {"bus", "pin"}) {
    const Answer answer =
        ask(probes().ceilings, R"({"cuda_device": 4096, "measure": [")" + what + R"("]})", nullptr);
    EXPECT_TRUE(answer.code == MILLPOND_E_DEVICE || answer.code == MILLPOND_E_UNSUPPORTED)
        << answer.status.text();
    EXPECT_NE(std::string(answer.status.message).find("CUDA"), std::string::npos)
        << answer.status.text();
    EXPECT_EQ(answer.pieces, 0);
  }
}

}  // namespace
}  // namespace millpond::tests
