#include "host_adapters/cli/doctor.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "host_adapters/cli/probe.h"
#include "host_adapters/command_line/quantity.h"
#include "millpond/client/plugin.h"
#include "millpond/client/plugin_error.h"

namespace millpond::cli {
namespace {

constexpr std::array<std::string_view, 3> kVerdicts = {"ok", "warning", "failed"};

// The worst of all; a verdict that this program does not know counts as the worst.
std::size_t severity(const Json& check) {
  const std::string verdict = check.at("verdict").get<std::string>();
  const auto* place = std::find(kVerdicts.begin(), kVerdicts.end(), verdict);
  return std::min<std::size_t>(static_cast<std::size_t>(place - kVerdicts.begin()), 2);
}

// At most 76 columns after an indent, cut between words.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string out;
  std::size_t column = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (column != 0 && column + 1 + end - at > 76) {
      out += "\n" + std::string(indent, ' ');
      column = 0;
    } else if (column != 0) {
      out += ' ';
      ++column;
    }
    out.append(text, at, end - at);
    column += end - at;
    at = end + 1;
  }
  return out;
}

std::string row(const Json& check) {
  constexpr std::size_t kIndent = 23;
  const auto padded = [](std::string text, std::size_t width) {
    text.resize(std::max(text.size(), width), ' ');
    return text;
  };
  const std::string verdict = check.at("verdict").get<std::string>();
  std::string text = "  " + padded(verdict, 8) + " " +
                     padded(check.at("name").get<std::string>(), 11) + " " +
                     wrapped(check.at("found").get<std::string>(), kIndent) + "\n";
  const std::string remedy = check.at("remedy").get<std::string>();
  if (!remedy.empty()) text += std::string(kIndent, ' ') + wrapped("-> " + remedy, kIndent) + "\n";
  return text;
}

Json measure_drive(const client::Plugin& plugin, const DoctorArguments& arguments) {
  try {
    return ask(plugin.probe().ceilings, nullptr,
               {{"measure", Json::array({"drive"})},
                {"directory", arguments.directory},
                {"file_bytes", arguments.measured_bytes},
                {"move_bytes", arguments.measured_bytes}})
        .at("drive");
  } catch (const client::PluginError& error) {
    return {
        {"checks",
         {{{"name", "drive"},
           {"verdict", "failed"},
           {"found", error.what()},
           {"remedy", "Look at the directory and its drive, or ask for fewer --drive-bytes."}}}}};
  }
}

std::string rates_line(const Json& drive) {
  std::string text;
  for (const Json& rate : drive.value("rates", Json::array())) {
    const double share = rate.at("read_share").get<double>();
    text += (text.empty() ? "                       " : ", ") +
            std::string(share == 1.0   ? "read "
                        : share == 0.0 ? "write "
                                       : "mixed ") +
            show_rate(rate.at("bytes_per_s").get<double>());
  }
  return text.empty() ? text : text + "\n";
}

}  // namespace

Diagnosis run_doctor(const DoctorArguments& arguments, Progress& progress) {
  const client::Plugin plugin = client::Plugin::open(arguments.plugin);
  Json document;
  document["verdict"] = nullptr;
  Json checks = Json::array();
  const auto add = [&](const Json& more) {
    for (const Json& check : more.at("checks")) checks.push_back(check);
  };
  document["machine"] = ask(plugin.probe().machine, nullptr, Json::object());
  add(document["machine"]);
  const std::uint64_t needed = arguments.params * state_bytes_of(arguments.moments, true);
  document["directory"] = ask(plugin.probe().directory, nullptr,
                              {{"directory", arguments.directory}, {"needed_bytes", needed}});
  add(document["directory"]);
  std::string rates;
  if (arguments.measure && document["directory"].at("usable").get<bool>()) {
    progress.line("measuring the drive with a file of " +
                  show_bytes(static_cast<double>(arguments.measured_bytes)) + " ...");
    document["drive"] = measure_drive(plugin, arguments);
    add(document["drive"]);
    rates = rates_line(document["drive"]);
  }
  std::size_t worst = 0;
  for (const Json& check : checks) worst = std::max(worst, severity(check));
  document["verdict"] = kVerdicts[worst];
  document["checks"] = checks;
  document["plugin"] = plugin.description();

  Diagnosis diagnosis;
  diagnosis.will_work = worst < 2;
  diagnosis.table = plugin.description() + "\n" + arguments.directory + "\n\n";
  for (const Json& check : checks) diagnosis.table += row(check);
  diagnosis.table += rates;
  diagnosis.table += worst == 0   ? "\nStreaming will work here.\n"
                     : worst == 1 ? "\nStreaming will work here; the warnings say what would make "
                                    "it better.\n"
                                  : "\nStreaming will not work here: mend what failed.\n";
  diagnosis.json = document.dump(2) + "\n";
  return diagnosis;
}

}  // namespace millpond::cli
