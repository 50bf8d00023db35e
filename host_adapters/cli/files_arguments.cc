// The command lines of the commands on checkpoint directories.
#include <CLI/CLI.hpp>

#include "host_adapters/cli/files.h"

namespace millpond::cli {
namespace {

constexpr const char* kExitCodes =
    "\nExit codes: 0 done; 1 the checkpoint is damaged or missing, or could not be written;\n"
    "2 wrong command line; diff: 4 the saves differ.";

CLI::App* add(CLI::App* app, Arguments& arguments, const char* name, const char* what,
              const std::string& examples) {
  CLI::App* const command = app->add_subcommand(name, what);
  FilesArguments& a = arguments.files;
  command->footer("Examples:\n" + examples + kExitCodes);
  command->add_option("PATH", a.path, "The checkpoint's base directory")->required();
  command->add_option(
      "--plugin", a.plugin,
      "libmillpond.so; else MILLPOND_PLUGIN, beside this program, the installed one");
  command->add_option("--json", a.json,
                      "Also writes the answer to this file; -: to the standard output");
  command->add_flag("--quiet", a.quiet, "No progress");
  command->callback([&arguments, name] {
    arguments.command = Arguments::Command::kFiles;
    arguments.files.name = name;
  });
  return command;
}

void add_save_id(CLI::App* command, FilesArguments& a) {
  command->add_option("--save-id", a.save_id, "One of its saves; else the newest");
}

void add_layout(CLI::App* command, FilesArguments& a) {
  command->add_option("--layout", a.layout, "JSON file: which shard is which entry of which file")
      ->required()
      ->check(CLI::ExistingFile);
}

void add_to(CLI::App* command, FilesArguments& a, const char* help) {
  command->add_option("--to", a.to, help)->required();
}

}  // namespace

void add_files_commands(CLI::App* app, Arguments& arguments) {
  FilesArguments& a = arguments.files;
  add_save_id(add(app, arguments, "inspect", "Says what is in a checkpoint, from its manifests",
                  "  millpond inspect /checkpoints/iter_100/nvme_opt_state\n"
                  "  millpond inspect DIR --json what.json\n"),
              a);
  add_save_id(add(app, arguments, "verify", "Reads every byte of a checkpoint and checks it",
                  "  millpond verify /checkpoints/iter_100/nvme_opt_state\n"
                  "  millpond verify DIR --quiet --json -\n"),
              a);
  CLI::App* const reshard =
      add(app, arguments, "reshard", "Writes a checkpoint anew for another number of ranks",
          "  millpond reshard DIR --to OTHER --world-size 64 --json what.json\n");
  add_save_id(reshard, a);
  add_to(reshard, a, "Base directory of the new checkpoint");
  reshard->add_option("--world-size", a.world_size, "Ranks")
      ->required()
      ->check(CLI::Range(1, 100'000));
  CLI::App* const import = add(
      app, arguments, "import", "Takes over a checkpoint of the reference implementation",
      "  millpond import iter_100/nvme_opt_state --layout layout.json --to DIR --json what.json\n");
  add_layout(import, a);
  add_to(import, a, "Base directory of the new checkpoint");
  CLI::App* const export_command = add(
      app, arguments, "export", "Writes a checkpoint as the reference implementation would",
      "  millpond export DIR --layout layout.json --to iter_100/nvme_opt_state --json what.json\n");
  add_save_id(export_command, a);
  add_layout(export_command, a);
  add_to(export_command, a, "Directory that gets rank00000/opt0_0/ and so on");
  CLI::App* const diff = add(app, arguments, "diff", "Compares two checkpoints by parameter",
                             "  millpond diff DIR OTHER --json what.json\n"
                             "  millpond diff DIR DIR --save-id ID --other-save-id ID\n");
  diff->add_option("OTHER", a.other, "The other checkpoint's base directory")->required();
  add_save_id(diff, a);
  diff->add_option("--other-save-id", a.other_save_id, "One of the other's saves; else the newest");
}

}  // namespace millpond::cli
