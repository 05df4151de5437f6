#include "study/study_command.h"

#include <filesystem>
#include <iostream>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "cli/error_line.h"
#include "study/compare.h"
#include "study/merge.h"
#include "study/records.h"
#include "study/report.h"
#include "study/runner.h"
#include "study/study_task.h"

namespace drivetrain::study {
namespace {

int compare(const cli::Arguments& arguments) {
  if (arguments.plain().size() != 3)
    throw fail(ErrorCode::config, "study compare: needs the folders of two studies: drivetrain study compare A B");
  if (arguments.has("--plan") || arguments.has("--resume") || arguments.has("--grow"))
    throw fail(ErrorCode::config, "study compare: --plan, --resume and --grow go with a study's file");
  std::cout << compare_text({.a = arguments.plain()[1],
                             .b = arguments.plain()[2],
                             .outcome = arguments.has("--outcome") ? arguments.text("--outcome") : "",
                             .any_environment = arguments.has("--any-environment"),
                             .json = arguments.has("--json")});
  return 0;
}

int merge(const cli::Arguments& arguments) {
  if (arguments.plain().size() != 3 || !arguments.has("--into"))
    throw fail(ErrorCode::config,
               "study merge: needs the folders of two studies and one for both: drivetrain study merge A B --into C");
  if (arguments.has("--plan") || arguments.has("--resume") || arguments.has("--grow") || arguments.has("--json") ||
      arguments.has("--any-environment") || arguments.has("--outcome"))
    throw fail(ErrorCode::config, "study merge: --into is its only option");
  std::cout << printable(merge_studies({arguments.plain()[1], arguments.plain()[2], arguments.text("--into")}));
  return 0;
}

// What has run, again, by this version; nothing runs.
int report(const cli::Arguments& arguments) {
  if (arguments.plain().size() != 2)
    throw fail(ErrorCode::config, "study report: needs the folder of a study: drivetrain study report FOLDER");
  if (arguments.has("--plan") || arguments.has("--resume") || arguments.has("--grow") || arguments.has("--json") ||
      arguments.has("--any-environment") || arguments.has("--into") || arguments.has("--outcome"))
    throw fail(ErrorCode::config, "study report: --reference is its only option");
  const std::string& folder = arguments.plain()[1];
  StudyRecord study = records_of(read_ledger(folder), folder);
  if (arguments.has("--reference")) choose_reference(study, arguments.text("--reference"));
  write_report(study);
  std::cout << printable("report: " + folder + "/report.html\n");
  return 0;
}

int run(const cli::Arguments& arguments) {
  const std::string& first = arguments.plain().front();
  if (arguments.has("--live") &&
      (first == "report" || first == "merge" || first == "compare" || first == "task" || arguments.has("--plan")))
    throw fail(ErrorCode::config, "study: --live goes with a study's file, and not with --plan: nothing else runs");
  if (first == "report") return report(arguments);
  if (arguments.has("--reference")) throw fail(ErrorCode::config, "study: --reference goes with report");
  if (arguments.plain().front() == "merge") return merge(arguments);
  if (arguments.has("--into")) throw fail(ErrorCode::config, "study: --into goes with merge");
  if (arguments.plain().front() == "compare") return compare(arguments);
  if (arguments.plain().front() == "task" && arguments.plain().size() == 2) return run_task(arguments.plain()[1]);
  if (arguments.has("--outcome")) throw fail(ErrorCode::config, "study: --outcome goes with compare");
  if (arguments.plain().size() > 1)
    throw fail(ErrorCode::config, "study: takes one file, found ", shown(arguments.plain()[1]), " too");
  if (arguments.has("--any-environment") || (arguments.has("--json") && !arguments.has("--plan")))
    throw fail(ErrorCode::config, "study: --any-environment goes with compare, and --json with --plan or compare");
  RunRequest request{.program = std::filesystem::read_symlink("/proc/self/exe").string()};
  request.plan_only = arguments.has("--plan"), request.resume = arguments.has("--resume");
  request.grow = arguments.has("--grow"), request.live = arguments.has("--live");
  request.json = arguments.has("--json");
  if (arguments.has("--hardware")) request.hardware = arguments.text("--hardware");
  return run_study(read_study(arguments.plain().front()), request);
}

}  // namespace

int study_command(const cli::Arguments& arguments) try {
  const int code = run(arguments);
  std::cout.flush();
  if (std::cout) return code;
  std::cerr << cli::error_line("cannot write to the standard output: it is full or closed");
  return static_cast<int>(ErrorCode::io);
} catch (const Error& e) {
  std::cout.flush();
  std::cerr << cli::error_line(e.what());
  return static_cast<int>(e.code());
}

}  // namespace drivetrain::study
