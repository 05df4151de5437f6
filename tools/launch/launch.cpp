#include "launch/launch.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <system_error>

#include "cli/error_line.h"
#include "launch/batch_script.h"
#include "launch/dry_run.h"
#include "launch/meeting.h"
#include "launch/open_files.h"
#include "launch/pid_file.h"
#include "launch/rank_of_starter.h"
#include "launch/report.h"
#include "launch/restarting.h"
#include "launch/write_text.h"

namespace drivetrain::program {
namespace {

// The number of a closed stdin must not go to a socket or a pipe.
void open_standard_descriptors() {
  int fd = 0;
  do fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

// Libraries answer with what nobody understands.
void check_current_folder() {
  std::error_code failed;
  static_cast<void>(std::filesystem::current_path(failed));
  if (failed)
    throw HostError(8, "the current folder is not there any more, or cannot be read: " + failed.message() +
                           "; `cd` to a folder that is");
}

}  // namespace

int launch(const LaunchRequest& request) try {
  check_current_folder();
  if (!request.hosts.said.empty()) launcher_says(request.err, request.hosts.said);
  if (request.hosts.dry_run) {
    write_text(request.out, dry_run_text(request));
    return 0;
  }
  if (!request.hosts.started_by.empty()) return become_rank_of_starter(request);
  if (!request.hosts.submit.empty()) {
    write_text(request.out, submit(request.hosts.script, request.hosts.submit) + "\n");
    return 0;
  }
  const std::string too_few =
      make_room_for_open_files(request.ranks, request.hosts.over_ssh ? request.hosts.hosts.size() : 0);
  if (!too_few.empty()) {
    write_text(request.err, cli::error_line("launch: " + too_few, request.err));
    return 8;
  }
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // what a rank leaves behind becomes a child of ours, to be ended
  signal(SIGPIPE, SIG_IGN);
  open_standard_descriptors();
  const PidFile pid_file(request.save_pid);
  return Restarting(request).run();
} catch (const HostError& e) {
  write_text(request.err, cli::error_line(std::string("launch: this host: ") + e.what(), request.err));
  return e.code;
} catch (const std::system_error& e) {
  write_text(request.err, cli::error_line(e.what(), request.err));
  return 8;
}

}  // namespace drivetrain::program
