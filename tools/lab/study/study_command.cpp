#include "study/study_command.h"

#include <filesystem>
#include <iostream>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "study/compare.h"
#include "study/runner.h"

namespace drivetrain::study {
namespace {

int compare(const cli::Arguments& arguments) {
  if (arguments.plain().size() != 3)
    throw fail(ErrorCode::config, "study compare: needs the folders of two studies: drivetrain study compare A B");
  if (arguments.has("--plan") || arguments.has("--resume"))
    throw fail(ErrorCode::config, "study compare: --plan and --resume go with a study's file");
  std::cout << compare_text({.a = arguments.plain()[1],
                             .b = arguments.plain()[2],
                             .any_environment = arguments.has("--any-environment"),
                             .json = arguments.has("--json")});
  return 0;
}

int run(const cli::Arguments& arguments) {
  if (arguments.plain().front() == "compare") return compare(arguments);
  if (arguments.plain().size() > 1)
    throw fail(ErrorCode::config, "study: takes one file, found ", shown(arguments.plain()[1]), " too");
  if (arguments.has("--any-environment") || (arguments.has("--json") && !arguments.has("--plan")))
    throw fail(ErrorCode::config, "study: --any-environment goes with compare, and --json with --plan or compare");
  RunRequest request{.program = std::filesystem::read_symlink("/proc/self/exe").string()};
  request.plan_only = arguments.has("--plan"), request.resume = arguments.has("--resume");
  request.json = arguments.has("--json");
  if (arguments.has("--hardware")) request.hardware = arguments.text("--hardware");
  return run_study(read_study(arguments.plain().front()), request);
}

}  // namespace

int study_command(const cli::Arguments& arguments) try {
  const int code = run(arguments);
  std::cout.flush();
  if (std::cout) return code;
  std::cerr << "drivetrain: error: cannot write to the standard output: it is full or closed\n";
  return static_cast<int>(ErrorCode::io);
} catch (const Error& e) {
  std::cout.flush();
  std::cerr << printable(std::string("drivetrain: error: ") + e.what() + "\n");
  return static_cast<int>(e.code());
}

}  // namespace drivetrain::study
