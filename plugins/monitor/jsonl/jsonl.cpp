// metrics.jsonl in the run folder: the data of every "step" event as one line, written before the next event is taken,
// so a killed run keeps all lines but perhaps the last. A run that goes on from a checkpoint, or begins again, adds to
// the lines up to there; those of steps that it will do again go.
#include <drivetrain/monitor.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include <drivetrain/services.h>

namespace {

using namespace drivetrain;

class Jsonl : public Monitor {
 public:
  Jsonl(const NoOptions&, const Services&) {}
  ~Jsonl() override { close(); }

  void on_event(const Event& event) override {
    if (event.type == "run_begin") open(event.data);
    if (event.type == "step") write_line(event);
    if (event.type == "run_end") close();
  }

 private:
  void open(const Value& facts) {
    const Value* folder = facts.find("output_dir");
    if (!folder) throw fail(ErrorCode::internal, "monitor/jsonl: run_begin names no output_dir");
    close();
    path_ = folder->as_string() + "/metrics.jsonl";
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file_ < 0) throw fail(ErrorCode::io, "monitor/jsonl: cannot open ", path_, ": ", std::strerror(errno));
    if (const Value* first = facts.find("first_step")) drop_from(first->as_int());
  }

  // Steps ascend, so the first line of this step, or one that was cut short, is where the file ends from now on.
  void drop_from(int64_t first_step) {
    struct stat status = {};
    if (::fstat(file_, &status) != 0 || status.st_size == 0) return;
    std::ifstream lines(path_, std::ios::binary);
    off_t end = 0;
    for (std::string line; std::getline(lines, line) && !lines.eof();) {
      if (step_of(line) >= first_step) break;
      end += static_cast<off_t>(line.size()) + 1;
    }
    if (::ftruncate(file_, end) != 0)
      throw fail(ErrorCode::io, "monitor/jsonl: cannot cut ", path_, " at step ", first_step, ": ",
                 std::strerror(errno), "\n   the run goes on there: it must be a file that this user may write");
  }

  static int64_t step_of(const std::string& line) {
    try {
      const Value data = parse_json(line, "line");
      const Value* step = data.find("step");
      return step ? step->as_int() : 0;
    } catch (const Error&) {  // not ours: it stays
      return 0;
    }
  }

  void write_line(const Event& event) {
    if (file_ < 0) throw fail(ErrorCode::internal, "monitor/jsonl: step ", event.step, " outside of a run");
    const std::string line = event.data.to_json() + "\n";
    for (size_t done = 0; done < line.size();) {
      const ssize_t n = ::write(file_, line.data() + done, line.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw lost_line(event.step, done, errno);
      done += static_cast<size_t>(n);
    }
  }

  // A full disk: the part that was written goes, so that every line stays one object.
  Error lost_line(int64_t step, size_t written, int reason) const {
    const off_t end = ::lseek(file_, 0, SEEK_END);
    const bool whole = written == 0 || ::ftruncate(file_, end - static_cast<off_t>(written)) == 0;
    return fail(ErrorCode::io, "monitor/jsonl: cannot write step ", step, " to ", path_, ": ", std::strerror(reason),
                whole ? "" : "; its last line is cut short", "\n   free some space or choose another output_dir");
  }

  void close() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }

  std::string path_;
  int file_ = -1;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Monitor, "jsonl", Jsonl)
