#include "launch/copy_install.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/rank_variables.h"
#include "launch/host_connection.h"
#include "launch/meeting.h"
#include "launch/outcome.h"
#include "launch/report.h"
#include "launch/signal_watch.h"
#include "launch/watched_command.h"
#include "launch/write_text.h"

namespace drivetrain::program {
namespace {

namespace fs = std::filesystem;

constexpr double kCopyMayTakeS = 600;  // of all hosts at once
constexpr double kLookMayTakeS = 60;
constexpr int kNotOurs = 3;  // a script's exit code

// Prints the digest of the files below `parts` of a folder, which is $1 of the function.
std::string digest_function(const std::string& parts) {
  return "sum() { (cd \"$1\" && find " + parts +
         " -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-64); }\n";
}

// Ctrl-C, or a signal of a batch system.
struct Stopped {
  int signal;
};

// A shell's script on this host. The last line that it printed.
std::string said_by(const WatchedCommand& script) {
  std::string text = script.out();
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return printable(text.substr(text.rfind('\n') + 1));
}

using Scripts = std::vector<std::unique_ptr<WatchedCommand>>;

std::unique_ptr<WatchedCommand> started(const std::string& script) {
  return std::make_unique<WatchedCommand>(std::vector<std::string>{"sh", "-c", "exec 2>&1\n" + script});
}

// Throws Stopped, and what was started is killed with all that it has started.
void wait_for(const Scripts& scripts, SignalWatch& signals, double within_s) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(within_s);
  const auto runs = [](const auto& script) { return !script->has_ended(); };
  while (std::any_of(scripts.begin(), scripts.end(), runs) && Clock::now() < end)
    if (const int signal = signals.next_within(0.05)) throw Stopped{signal};
}

std::string result_of(const std::string& script, SignalWatch& signals) {
  Scripts one;
  one.push_back(started(script));
  wait_for(one, signals, kCopyMayTakeS);
  if (!one[0]->has_ended() || one[0]->code() != 0) throw HostError(8, "--copy: " + said_by(*one[0]));
  return said_by(*one[0]);
}

std::string over_ssh(const LaunchRequest& request, const std::string& host, const std::string& script) {
  std::vector<std::string> words = ssh_command(request.hosts, host, "");
  words.back() = "exec sh -c " + shell_quoted(script);
  return shell_line(words);
}

std::string copy_folder(const LaunchRequest& request) {
  return fs::absolute(request.hosts.copy_folder).lexically_normal();
}

// Whether all that is made on a host can be, before anything is. The folder is the user's or root's: another owner
// could change the program that runs there, however the folder's mode lets this user write.
std::string look_script(const LaunchRequest& request) {
  const std::string folder = shell_quoted(copy_folder(request)), here = shell_quoted(fs::current_path());
  return "refuse() { echo \"$1\"; exit " + std::to_string(kNotOurs) + "; }\n" +
         "may_write() {\n"
         "  at=$1; while [ ! -e \"$at\" ] && [ ! -L \"$at\" ]; do at=$(dirname \"$at\"); done\n"
         "  [ -d \"$at\" ] || refuse \"$at is no folder\"\n"
         "  [ -w \"$at\" ] && [ -x \"$at\" ] || refuse \"$(id -un) may not write in $at\"\n"
         "}\n"
         "for folder in " +
         folder + " " + folder +
         "/configs; do\n"
         "  may_write \"$folder\"\n"
         "  [ \"$at\" = \"$folder\" ] || continue\n"
         "  case $(stat -L -c %u \"$at\") in 0|$(id -u)) ;; *) refuse \"$at belongs to $(stat -L -c %U \"$at\"), "
         "who could change the program that $(id -un) runs there\";; esac\n"
         "done\n"
         "[ -d " +
         here + " ] || may_write " + here + "\n";
}

// What is brought, and where to.
class Copy {
 public:
  Copy(const LaunchRequest& request, SignalWatch& signals) : request_(request) {
    const fs::path program = request.command.front();
    root_ = program.parent_path().parent_path();
    for (const char* part : {"bin", "lib", "share"})
      if (fs::is_directory(root_ / part)) parts_ += (parts_.empty() ? "" : " ") + std::string(part);
    if (!fs::exists(root_ / "lib/libdrivetrain.so") || fs::exists(root_ / "build.ninja"))
      throw HostError(2, "--copy brings an install folder, and " + root_.string() +
                             " is none; `cmake --install build/release --prefix DIR` makes one");
    digest_ = result_of(digest_function(parts_) + "sum " + shell_quoted(root_), signals);
    const std::string folder = copy_folder(request);
    target_ = folder + "/drivetrain-" DRIVETRAIN_RELEASE "-" + digest_.substr(0, 16);
    if (request.config.number >= 0 || request.config_path.empty()) return;
    config_digest_ = result_of("sha256sum < " + shell_quoted(request.config_path), signals).substr(0, 16);
    config_ = folder + "/configs/" + config_digest_ + "/" + fs::path(request.config_path).filename().string();
  }

  std::string script_for(const std::string& host) const {
    std::string script =
        "tar -C " + shell_quoted(root_) + " -cf - " + parts_ + " | " + over_ssh(request_, host, tree_script());
    if (!config_.empty())
      script += " && " + over_ssh(request_, host, config_script()) + " < " + shell_quoted(request_.config_path);
    return script;
  }
  std::string program() const { return target_ + "/bin/drivetrain"; }
  const std::string& config() const { return config_; }

 private:
  // A tree that is there has to be this one; a new one is complete before it has its name, which another launch may
  // have given to its own meanwhile.
  std::string tree_script() const {
    const std::string target = shell_quoted(target_);
    return "set -e\numask 077\n" + digest_function(parts_) + "mkdir -p " + shell_quoted(fs::current_path()) + "\n" +
           "if [ -d " + target + " ]; then\n" + "  [ \"$(sum " + target + ")\" = " + digest_ + " ] && exit 0\n" +
           "  echo " + target + " 'has other files than it had; remove it' >&2; exit 3\nfi\n" + "mkdir -p " +
           shell_quoted(fs::path(target_).parent_path()) + "\n" + "part=" + target + ".$$\n" +
           "trap 'rm -rf \"$part\"' EXIT; trap 'exit 1' HUP INT TERM PIPE\n" +
           "mkdir \"$part\"; tar --no-same-owner --no-same-permissions -C \"$part\" -xf -\n" +
           "[ \"$(sum \"$part\")\" = " + digest_ + " ] || { echo the copy differs from what was sent >&2; exit 3; }\n" +
           "mv -T \"$part\" " + target + " 2> /dev/null || [ \"$(sum " + target + ")\" = " + digest_ + " ] || {\n" +
           "  echo " + target + " 'cannot be made, or has other files than were sent' >&2; exit 3; }\n";
  }
  std::string config_script() const {
    const std::string target = shell_quoted(config_);
    return "set -e\numask 077\nmkdir -p " + shell_quoted(fs::path(config_).parent_path()) + "\npart=" + target +
           ".$$\n" + "trap 'rm -f \"$part\"' EXIT; trap 'exit 1' HUP INT TERM PIPE\n" + "cat > \"$part\"\n" +
           "case $(sha256sum < \"$part\") in " + config_digest_ +
           "*) ;; *) echo the config differs from what was sent " + ">&2; exit 3;; esac\n" + "mv \"$part\" " + target +
           "\n";
  }

  const LaunchRequest& request_;
  fs::path root_;
  std::string parts_, digest_, target_, config_digest_, config_;
};

struct Problem {
  bool says_all;  // the script itself has told it
  std::string text;
};

using ScriptFor = std::function<std::string(const std::string& host)>;

// On all hosts at once. Returns what kept some of them from it.
std::vector<Problem> run_on_all(const std::vector<Host>& hosts, const ScriptFor& script_for, SignalWatch& signals,
                                double within_s) {
  Scripts scripts;
  for (const Host& host : hosts) scripts.push_back(started(script_for(host.name)));
  wait_for(scripts, signals, within_s);
  std::vector<Problem> problems;
  for (size_t i = 0; i < hosts.size(); ++i) {
    WatchedCommand& script = *scripts[i];
    const bool ended = script.has_ended();
    if (ended && script.code() == 0) continue;
    const std::string said = ended ? said_by(script) : "it took longer than " + seconds_text(within_s);
    const bool says_all = !ended || (script.code() == kNotOurs && !said.empty());
    const std::string exit = "exit " + std::to_string(script.code()) + (said.empty() ? "" : ": ");
    problems.push_back({says_all && ended, "host " + hosts[i].name + ": " + (says_all ? "" : exit) + said});
  }
  return problems;
}

std::string text_of(const std::vector<Problem>& problems) {
  std::vector<std::string> texts;
  for (const Problem& problem : problems) texts.push_back(problem.text);
  return join(texts, "; ");
}

std::string look_from_here(const LaunchRequest& request, const std::string& host) {
  return over_ssh(request, host, look_script(request));
}

void look_at_folders(const LaunchRequest& request, const std::vector<Host>& hosts, SignalWatch& signals) {
  const auto look = [&](const std::string& host) { return look_from_here(request, host); };
  const std::vector<Problem> problems = run_on_all(hosts, look, signals, kLookMayTakeS);
  if (problems.empty()) return;
  if (!std::all_of(problems.begin(), problems.end(), [](const Problem& p) { return p.says_all; }))
    throw HostError(5, "--copy does not reach all hosts, and nothing was copied: " + text_of(problems));
  throw HostError(2, "--copy " + request.hosts.copy_folder + ": nothing was copied: " + text_of(problems) +
                         "; name a folder that is this user's own on every host, or that can be made there");
}

void copy_to_all(const Copy& copy, const std::vector<Host>& hosts, SignalWatch& signals) {
  const auto script = [&](const std::string& host) { return copy.script_for(host); };
  const std::vector<Problem> problems = run_on_all(hosts, script, signals, kCopyMayTakeS);
  if (!problems.empty())
    throw HostError(5, "--copy did not reach all hosts, and no rank was started: " + text_of(problems));
}

}  // namespace

int copy_to_hosts(LaunchRequest& request) try {
  if (request.hosts.copy_folder.empty()) return 0;
  SignalWatch signals;
  std::vector<Host> hosts = request.hosts.hosts;
  hosts.insert(hosts.end(), request.hosts.spares.begin(), request.hosts.spares.end());
  if (!request.hosts.dry_run) look_at_folders(request, hosts, signals);
  const Copy copy(request, signals);
  if (request.hosts.dry_run)
    for (const Host& host : hosts)
      for (const std::string& script : {look_from_here(request, host.name), copy.script_for(host.name)})
        write_text(request.out, "launcher: " + script + "\n");
  else
    copy_to_all(copy, hosts, signals);
  const std::string config = request.config_path;
  request.command_here = request.command;
  request.command.front() = copy.program();
  if (copy.config().empty()) return 0;
  std::replace(request.command.begin() + 1, request.command.end(), config, copy.config());
  request.config_path = copy.config();
  // So that its relative paths mean what they mean here.
  request.hosts.environment.push_back(RankStart::kConfigCopy + ("=" + copy.config()));
  request.hosts.environment.push_back(RankStart::kConfigFolder + ("=" + fs::absolute(config).parent_path().string()));
  return 0;
} catch (const Stopped& e) {
  launcher_says(request.err, "stopped by signal " + std::to_string(e.signal) + " before any rank was started");
  return 128 + (e.signal == SIGHUP ? SIGTERM : e.signal);
} catch (const HostError& e) {
  write_text(request.err, std::string("drivetrain: error: launch: ") + e.what() + "\n");
  return e.code;
} catch (const std::system_error& e) {
  write_text(request.err, std::string("drivetrain: error: ") + e.what() + "\n");
  return 8;
}

}  // namespace drivetrain::program
