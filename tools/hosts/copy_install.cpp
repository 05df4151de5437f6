#include "hosts/copy_install.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <system_error>

#include "config/printable.h"
#include "hosts/host_connection.h"
#include "hosts/meeting.h"
#include "launch/line_relay.h"
#include "launch/outcome.h"

namespace drivetrain::program {
namespace {

namespace fs = std::filesystem;

constexpr double kCopyMayTakeS = 600;  // of all hosts at once

// Prints the digest of the files below `parts` of a folder, which is $1 of the function.
std::string digest_function(const std::string& parts) {
  return "sum() { (cd \"$1\" && find " + parts +
         " -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-64); }\n";
}

// A shell's script on this host, with what it prints.
class LocalScript {
 public:
  explicit LocalScript(const std::string& text) : words_{"sh", "-c", text}, said_(memfd_create("said", MFD_CLOEXEC)) {
    RankStart start;
    start.command = &words_;
    start.out = start.err = said_.get();
    sigset_t none;
    sigemptyset(&none);
    start.signal_mask = &none;
    pid_ = start_rank(start);
  }
  LocalScript(LocalScript&& other) noexcept
      : words_(std::move(other.words_)), said_(std::move(other.said_)), pid_(other.pid_), code_(other.code_) {
    other.pid_ = -1;
  }
  LocalScript& operator=(LocalScript&&) = delete;
  ~LocalScript() { end(); }

  bool has_ended() {
    int status = 0;
    if (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return pid_ <= 0;
  }
  void end() {
    if (pid_ <= 0) return;
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  int code() const { return code_; }  // -1: it was ended
  // The last line.
  std::string said() const {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = pread(said_.get(), buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    return printable(text.substr(text.rfind('\n') + 1));
  }

 private:
  std::vector<std::string> words_;
  Descriptor said_;
  pid_t pid_ = -1;
  int code_ = -1;
};

std::string result_of(const std::string& script) {
  LocalScript running(script);
  while (!running.has_ended()) poll(nullptr, 0, 10);
  if (running.code() != 0) throw HostError(8, "--copy: " + running.said());
  return running.said();
}

// What is brought, and where to.
class Copy {
 public:
  explicit Copy(const LaunchRequest& request) : request_(request) {
    const fs::path program = request.command.front();
    root_ = program.parent_path().parent_path();
    for (const char* part : {"bin", "lib", "share"})
      if (fs::is_directory(root_ / part)) parts_ += (parts_.empty() ? "" : " ") + std::string(part);
    if (!fs::exists(root_ / "lib/libdrivetrain.so") || fs::exists(root_ / "build.ninja"))
      throw HostError(2, "--copy brings an install folder, and " + root_.string() +
                             " is none; `cmake --install build/release --prefix DIR` makes one");
    digest_ = result_of(digest_function(parts_) + "sum " + shell_quoted(root_));
    const std::string folder = fs::absolute(request.hosts.copy_folder).lexically_normal();
    target_ = folder + "/drivetrain-" DRIVETRAIN_RELEASE "-" + digest_.substr(0, 16);
    if (request.config.number >= 0 || request.config_path.empty()) return;
    config_ = folder + "/configs/" + result_of("sha256sum < " + shell_quoted(request.config_path)).substr(0, 16) + "/" +
              fs::path(request.config_path).filename().string();
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

  // A tree that is there has to be this one; a new one is complete before it has its name.
  std::string tree_script() const {
    const std::string target = shell_quoted(target_);
    return "set -e\numask 077\n" + digest_function(parts_) + "mkdir -p " + shell_quoted(fs::current_path()) + "\n" +
           "if [ -d " + target + " ]; then\n" + "  [ \"$(sum " + target + ")\" = " + digest_ + " ] && exit 0\n" +
           "  echo " + target + " 'has other files than it had; remove it' >&2; exit 3\nfi\n" + "mkdir -p " +
           shell_quoted(fs::path(target_).parent_path()) + "\n" + "part=" + target + ".$$\n" +
           "trap 'rm -rf \"$part\"' EXIT; trap 'exit 1' HUP INT TERM PIPE\n" +
           "mkdir \"$part\"; tar --no-same-owner --no-same-permissions -C \"$part\" -xf -\n" +
           "[ \"$(sum \"$part\")\" = " + digest_ + " ] || { echo the copy differs from what was sent >&2; exit 3; }\n" +
           "mv -T \"$part\" " + target + "\n";
  }
  std::string config_script() const {
    const std::string target = shell_quoted(config_);
    return "set -e\numask 077\nmkdir -p " + shell_quoted(fs::path(config_).parent_path()) + "\ncat > " + target +
           ".$$ && mv " + target + ".$$ " + target + "\n";
  }

  const LaunchRequest& request_;
  fs::path root_;
  std::string parts_, digest_, target_, config_;
};

std::string reason_of(const LocalScript& script) {
  if (script.code() < 0) return "the copy took longer than " + seconds_text(kCopyMayTakeS);
  return "exit " + std::to_string(script.code()) + (script.said().empty() ? "" : ": " + script.said());
}

void run_on_all(const Copy& copy, const std::vector<Host>& hosts) {
  std::vector<LocalScript> scripts;
  for (const Host& host : hosts) scripts.emplace_back(copy.script_for(host.name));
  const auto running = [&] {
    return std::any_of(scripts.begin(), scripts.end(), [](LocalScript& one) { return !one.has_ended(); });
  };
  for (int tenths = 0; running() && tenths < kCopyMayTakeS * 10; ++tenths) poll(nullptr, 0, 100);
  std::string problems;
  for (size_t i = 0; i < hosts.size(); ++i) {
    scripts[i].end();
    if (scripts[i].code() != 0)
      problems += (problems.empty() ? "" : "; ") + ("host " + hosts[i].name) + ": " + reason_of(scripts[i]);
  }
  if (!problems.empty()) throw HostError(5, "--copy did not reach all hosts, and no rank was started: " + problems);
}

}  // namespace

int copy_to_hosts(LaunchRequest& request) try {
  if (request.hosts.copy_folder.empty()) return 0;
  const Copy copy(request);
  std::vector<Host> hosts = request.hosts.hosts;
  hosts.insert(hosts.end(), request.hosts.spares.begin(), request.hosts.spares.end());
  if (request.hosts.dry_run)
    for (const Host& host : hosts) write_text(request.out, "launcher: " + copy.script_for(host.name) + "\n");
  else
    run_on_all(copy, hosts);
  const std::string config = request.config_path;
  request.command_here = request.command;
  request.command.front() = copy.program();
  if (copy.config().empty()) return 0;
  std::replace(request.command.begin() + 1, request.command.end(), config, copy.config());
  request.config_path = copy.config();
  return 0;
} catch (const HostError& e) {
  write_text(request.err, std::string("drivetrain: error: launch: ") + e.what() + "\n");
  return e.code;
} catch (const std::system_error& e) {
  write_text(request.err, std::string("drivetrain: error: ") + e.what() + "\n");
  return 8;
}

}  // namespace drivetrain::program
