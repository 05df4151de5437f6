#include "launch/rank_of_starter.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "launch/rank_process.h"
#include "launch/report.h"
#include "launch/write_text.h"

namespace drivetrain::program {
namespace {

// Of this process, as the starter counts.
std::string variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value && *value) return value;
  return "";
}

}  // namespace

int become_rank_of_starter(const LaunchRequest& request) {
  set_variables(request.hosts.environment);
  std::vector<std::string> words = request.command;
  if (!request.resume.empty()) words.insert(words.end(), {"--resume", request.resume});
  if (variable({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) == "0")
    launcher_says(request.err, request.hosts.started_by + " has started " +
                                   variable({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) +
                                   " processes of this command: each is a rank of one run (`drivetrain train`)");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv.front(), argv.data());
  write_text(request.err, "drivetrain: error: cannot run " + words.front() + ": " + std::strerror(errno) + "\n");
  return 127;
}

}  // namespace drivetrain::program
