#include "log/log_console.h"

#include <fcntl.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <mutex>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/own_file.h>

#include "base/printable.h"
#include "process/guarded_descriptors.h"

namespace drivetrain {
namespace {

constexpr size_t kEarlyLines = 1000;
constexpr const char* kEraseLine = "\r\033[K";

struct LevelRow {
  spdlog::level::level_enum level;
  const char* label;  // info speaks for itself; the others say what they are
};
// By LogLevel.
constexpr LevelRow kLevels[] = {{spdlog::level::debug, "debug: "},
                                {spdlog::level::info, ""},
                                {spdlog::level::warn, "warning: "},
                                {spdlog::level::err, "error: "}};
const LevelRow& row_of(LogLevel level) { return kLevels[std::min(static_cast<size_t>(level), std::size(kLevels) - 1)]; }

// False, with errno, if not all of it could be written.
bool write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

// stdout and stderr, and the progress line that stands below them on a terminal. Locked by its owner.
class ConsoleSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit ConsoleSink(const LogSettings& settings) : settings_(settings) {}
  ~ConsoleSink() override { erase_progress(); }

  void show_progress(const std::string& line) {
    if (!settings_.terminal) return;
    progress_shown_ = write_all(settings_.out, kEraseLine + line.substr(0, columns() - 1));
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    erase_progress();
    const bool problem = message.level >= spdlog::level::warn;
    std::string text(message.payload.data(), message.payload.size());
    if (problem && settings_.colour)
      text = (message.level == spdlog::level::warn ? "\033[33m" : "\033[31m") + text + "\033[0m";
    // One write per line, so that lines of several ranks do not mix.
    if (!write_all(problem ? settings_.err : settings_.out, text + "\n"))
      spdlog::throw_spdlog_ex("cannot write to the console", errno);
  }
  void flush_() override {}

 private:
  void erase_progress() {
    if (progress_shown_) write_all(settings_.out, kEraseLine);
    progress_shown_ = false;
  }

  // A wrapped line could not be replaced by a carriage return.
  size_t columns() const {
    winsize size = {};
    return ioctl(settings_.out, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
  }

  const LogSettings settings_;
  bool progress_shown_ = false;
};

// The run's log file. Locked by its owner.
class FileSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  FileSink(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  ~FileSink() override { guard_.let_go(), ::close(descriptor_); }

 protected:
  // One write per line, beside those that other ranks add.
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::string text(message.payload.data(), message.payload.size());
    if (!write_all(descriptor_, text + "\n")) spdlog::throw_spdlog_ex("cannot write to " + path_, errno);
  }
  void flush_() override {}

 private:
  const int descriptor_;
  GuardedDescriptor guard_{descriptor_};
  const std::string path_;
};

class ConsoleLog : public Log {
 public:
  explicit ConsoleLog(const LogSettings& settings)
      : settings_(settings), console_(std::make_shared<ConsoleSink>(settings)), logger_("drivetrain", console_) {
    const LogLevel least = settings.rank == 0 ? settings.level : std::max(settings.level, LogLevel::warning);
    logger_.set_level(row_of(least).level);
    logger_.flush_on(spdlog::level::trace);  // a killed run keeps its last line
    logger_.set_error_handler([this](const std::string& reason) { report_once(reason); });
  }

  void write(LogLevel level, const std::string& line) override {
    const std::lock_guard lock(mutex_);
    const LevelRow& row = row_of(level);
    if (!logger_.should_log(row.level)) return;
    const std::string text = printable(row.label + line);
    logger_.log(row.level, text);
    if (!has_file_ && early_.size() < kEarlyLines) early_.push_back(text);
  }

  void progress(const std::string& line) override {
    const std::lock_guard lock(mutex_);
    if (settings_.rank == 0 && logger_.should_log(spdlog::level::info)) console_->show_progress(printable(line));
  }

  void attach(const std::string& path) {
    const std::lock_guard lock(mutex_);
    struct stat found = {};
    if (::stat(path.c_str(), &found) == 0 && S_ISFIFO(found.st_mode))  // it would wait for a reader for ever
      throw fail(ErrorCode::io, path,
                 ": is a pipe and no regular file, and the log is written there\n   remove it, or choose another "
                 "folder with --set output_dir=FOLDER");
    const int descriptor = open_to_append(path, O_WRONLY | O_CREAT);
    if (descriptor < 0) throw fail(ErrorCode::io, "cannot open ", path, " for the log: ", append_problem(path, errno));
    const auto file = std::make_shared<FileSink>(descriptor, path);
    logger_.sinks() = {file};  // the console has shown the early lines already
    for (const std::string& line : early_) logger_.log(spdlog::level::err, line);
    logger_.sinks() = {console_, file};
    early_.clear();
    has_file_ = true;
    notes_ = path;
  }

  void note_elsewhere(const std::string& path, std::function<bool()> may) {
    const std::lock_guard lock(mutex_);
    if (!has_file_) notes_ = path, may_note_ = std::move(may);
  }

  std::string note(const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (!has_file_) return add_to_foreign(concat("[rank ", settings_.rank, "] ", printable(line), "\n")) ? notes_ : "";
    const auto sinks = logger_.sinks();
    logger_.sinks() = {sinks.back()};
    logger_.log(spdlog::level::err, printable(line));
    logger_.sinks() = sinks;
    return notes_;
  }

 private:
  // In one write at its end, beside those of the rank that owns it.
  bool add_to_foreign(const std::string& text) const {
    if (notes_.empty() || !may_note_()) return false;
    const int file = open_to_append(notes_, O_WRONLY | O_NONBLOCK);
    if (file < 0) return false;
    const bool written = write_all(file, text);
    ::close(file);
    return written;
  }

  void report_once(const std::string& reason) {
    if (reported_) return;
    reported_ = true;
    write_all(settings_.err, "warning: a log line is lost, more may follow: " + reason + "\n");
  }

  const LogSettings settings_;
  std::mutex mutex_;  // all below; logger_'s own error handler runs under it
  std::shared_ptr<ConsoleSink> console_;
  spdlog::logger logger_;
  std::vector<std::string> early_;  // shown before there was a file
  std::string notes_;               // where notes go: the attached file, or another rank's; empty: nowhere
  std::function<bool()> may_note_;  // of another rank's file
  bool has_file_ = false, reported_ = false;
};

}  // namespace

std::shared_ptr<Log> make_console_log(const LogSettings& settings) { return std::make_shared<ConsoleLog>(settings); }

void attach_file(Log& log, const std::string& path) {
  auto* console = dynamic_cast<ConsoleLog*>(&log);
  if (!console) throw fail(ErrorCode::internal, "attach_file: ", path, " cannot be added to a log of another kind");
  console->attach(path);
}

std::string note_in_file(Log& log, const std::string& line) {
  auto* console = dynamic_cast<ConsoleLog*>(&log);
  return console ? console->note(line) : "";
}

void note_elsewhere(Log& log, const std::string& path, std::function<bool()> may) {
  if (auto* console = dynamic_cast<ConsoleLog*>(&log)) console->note_elsewhere(path, std::move(may));
}

}  // namespace drivetrain
