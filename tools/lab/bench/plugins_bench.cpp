// `drivetrain bench plugins`: how long it takes to read the manifests of all plugins, and to open each library. Once
// per process: an open library stays open.
#include <drivetrain/toolkit/seconds_since.h>
#include <drivetrain/toolkit/text.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "bench/machine.h"
#include "bench/table.h"
#include "plugin/open.h"
#include "plugin/registry.h"
#include "shared/commands.h"

namespace drivetrain {
namespace {

using Clock = std::chrono::steady_clock;

struct OpenedLibrary {
  std::string name, refusal;
  double seconds = 0;
};

OpenedLibrary open_timed(const Found& found) {
  OpenedLibrary opened{found.file->manifest.library, {}, 0};
  const auto begin = Clock::now();
  try {
    open_library(found.file);
  } catch (const Error& e) {
    opened.refusal = first_line(e.what());
  }
  opened.seconds = seconds_since(begin);
  return opened;
}

}  // namespace

BenchReport bench_plugins(const BenchArguments& arguments) {
  const BenchMachine machine = describe_machine();
  const SearchPath search = search_path(RunSettings(), arguments.all("--plugin-path"));
  const auto begin = Clock::now();
  const Registry registry(search);
  const double read_s = seconds_since(begin);
  std::vector<OpenedLibrary> libraries;
  std::set<const PluginFile*> seen;
  for (const Found& found : registry.found())
    if (found.state == Found::usable && seen.insert(found.file.get()).second) libraries.push_back(open_timed(found));
  std::sort(libraries.begin(), libraries.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });

  BenchReport report = report_on("plugins", machine);
  TextTable table({"library", "opened in"});
  Value list = Value::array();
  double open_s = 0;
  for (const OpenedLibrary& library : libraries) {
    open_s += library.seconds;
    table.row({library.name, library.refusal.empty() ? seconds_text(library.seconds) : library.refusal});
    Value one = Value::object();
    one.set("library", library.name), one.set("open_s", library.seconds);
    list.items().push_back(std::move(one));
  }
  report.json.set("libraries", static_cast<int64_t>(libraries.size()));
  report.json.set("read_s", read_s), report.json.set("open_s", open_s), report.json.set("all_s", read_s + open_s);
  report.json.set("each", std::move(list));
  report.text += table.text() + concat("manifests of ", libraries.size(), " libraries read in ", seconds_text(read_s),
                                       ", opened in ", seconds_text(open_s), "; LibTorch was open\n");
  return report;
}

}  // namespace drivetrain
