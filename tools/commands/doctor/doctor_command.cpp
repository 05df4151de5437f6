// `drivetrain doctor`: is this machine, this plugin or this config good to run?
#include <filesystem>
#include <iostream>

#include "base/printable.h"
#include "contract/device_runtime.h"
#include "doctor/checks.h"
#include "shared/commands.h"
#include "train/checked_config.h"

namespace drivetrain {
namespace {

struct DoctorRequest {
  std::string plugin;
  ConfigRequest config;  // without a path: of the machine alone
  int64_t ranks = 0;     // 0: no test of collectives
  std::string communicator;
};

// What `config check` says of it, without a GPU and without other ranks, against what this machine has.
void look_at_config(Findings& findings, const CheckedConfig& checked) {
  findings.begin("config");
  if (checked.run) return look_at_needs(findings, *checked.run);
  if (checked.problems.list().empty()) return findings.attempt("file", [&] { checked.throw_if_refused(); });
  for (const Problem& p : checked.problems.list())
    findings.attempt("file", [&] { throw Error(p.code, concat(p.where.text(), "  ", p.message)); });
}

Findings examine(const DoctorRequest& r) {
  Findings findings;
  const bool with_config = !r.config.path.empty();
  CheckedConfig checked;
  if (with_config) checked = check_config(r.config);
  if (checked.settings.output_dir.empty()) checked.settings.output_dir = std::filesystem::absolute("runs").string();
  const SearchPath search = search_path(checked.settings, r.config.plugin_paths);
  const bool only_plugin = !r.plugin.empty() && !with_config;
  if (!only_plugin) {
    look_at_machine(findings, checked.settings.output_dir, r.ranks);
    look_at_libraries(findings, checked.settings.device);
  }
  if (!r.plugin.empty()) look_at_plugin_file(findings, r.plugin, search);
  if (!only_plugin) {
    if (!checked.registry) checked.registry = std::make_unique<Registry>(search);
    look_at_plugins(findings, search, *checked.registry);
  }
  if (with_config) look_at_config(findings, checked);
  const bool on_device = with_config ? checked.settings.device == "cuda" : device_runtime() != nullptr;
  if (r.ranks > 0) look_at_ranks(findings, r.ranks, on_device ? "cuda" : "cpu", r.communicator, r.config.plugin_paths);
  return findings;
}

}  // namespace

int doctor_command(const cli::Arguments& arguments) {
  const int64_t ranks = arguments.whole("--ranks", 0);
  if (ranks == 1)
    throw fail(ErrorCode::config,
               "doctor: --ranks wants 2 at least; 1 goes with --hostfile FILE, on each of its hosts");
  const DoctorRequest request{
      arguments.text("--plugin"),
      {arguments.text("--config"), arguments.all("--set"), {}, arguments.all("--plugin-path"), ranks},
      ranks,
      arguments.text("--communicator")};
  const Findings findings = examine(request);
  std::cout << (arguments.has("--json") ? findings.to_value().to_json(2) + "\n" : printable(findings.text()));
  return findings.exit_code();
}

}  // namespace drivetrain
