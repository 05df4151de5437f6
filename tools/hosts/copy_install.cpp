#include "hosts/copy_install.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <system_error>

#include "config/printable.h"
#include "hosts/host_connection.h"
#include "hosts/meeting.h"
#include "hosts/watched_command.h"
#include "launch/outcome.h"
#include "launch/report.h"
#include "launch/signal_watch.h"
#include "launch/write_text.h"

namespace drivetrain::program {
namespace {

namespace fs = std::filesystem;

constexpr double kCopyMayTakeS = 600;  // of all hosts at once

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
    const std::string folder = fs::absolute(request.hosts.copy_folder).lexically_normal();
    target_ = folder + "/drivetrain-" DRIVETRAIN_RELEASE "-" + digest_.substr(0, 16);
    if (request.config.number >= 0 || request.config_path.empty()) return;
    config_digest_ = result_of("sha256sum < " + shell_quoted(request.config_path), signals).substr(0, 16);
    config_ = folder + "/configs/" + config_digest_ + "/" + fs::path(request.config_path).filename().string();
  }

  std::string script_for(const std::string& host) const {
    std::string script = "tar -C " + shell_quoted(root_) + " -cf - " + parts_ + " | " + over_ssh(host, tree_script());
    if (!config_.empty())
      script += " && " + over_ssh(host, config_script()) + " < " + shell_quoted(request_.config_path);
    return script;
  }
  std::string program() const { return target_ + "/bin/drivetrain"; }
  const std::string& config() const { return config_; }

 private:
  std::string over_ssh(const std::string& host, const std::string& script) const {
    std::vector<std::string> words = ssh_command(request_.hosts, host, "");
    words.back() = "exec sh -c " + shell_quoted(script);
    return shell_line(words);
  }

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

std::string reason_of(WatchedCommand& script) {
  if (!script.has_ended()) return "the copy took longer than " + seconds_text(kCopyMayTakeS);
  const std::string said = said_by(script);
  return "exit " + std::to_string(script.code()) + (said.empty() ? "" : ": " + said);
}

void run_on_all(const Copy& copy, const std::vector<Host>& hosts, SignalWatch& signals) {
  Scripts scripts;
  for (const Host& host : hosts) scripts.push_back(started(copy.script_for(host.name)));
  wait_for(scripts, signals, kCopyMayTakeS);
  std::string problems;
  for (size_t i = 0; i < hosts.size(); ++i)
    if (!scripts[i]->has_ended() || scripts[i]->code() != 0)
      problems += (problems.empty() ? "" : "; ") + ("host " + hosts[i].name) + ": " + reason_of(*scripts[i]);
  if (!problems.empty()) throw HostError(5, "--copy did not reach all hosts, and no rank was started: " + problems);
}

}  // namespace

int copy_to_hosts(LaunchRequest& request) try {
  if (request.hosts.copy_folder.empty()) return 0;
  SignalWatch signals;
  const Copy copy(request, signals);
  std::vector<Host> hosts = request.hosts.hosts;
  hosts.insert(hosts.end(), request.hosts.spares.begin(), request.hosts.spares.end());
  if (request.hosts.dry_run)
    for (const Host& host : hosts) write_text(request.out, "launcher: " + copy.script_for(host.name) + "\n");
  else
    run_on_all(copy, hosts, signals);
  const std::string config = request.config_path;
  request.command_here = request.command;
  request.command.front() = copy.program();
  if (copy.config().empty()) return 0;
  std::replace(request.command.begin() + 1, request.command.end(), config, copy.config());
  request.config_path = copy.config();
  // So that its relative paths mean what they mean here.
  request.hosts.environment.push_back("DRIVETRAIN_CONFIG_COPY=" + copy.config());
  request.hosts.environment.push_back("DRIVETRAIN_CONFIG_FOLDER=" + fs::absolute(config).parent_path().string());
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
