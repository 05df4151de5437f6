// metrics.jsonl in the run folder: the data of every "step" event as one line, written before the next event is taken,
// so a killed run keeps all lines but perhaps the last. With each checkpoint they are synced to the disk: after a power
// cut all lines up to there are whole. A run that goes on from a checkpoint, or begins again, adds to the lines up to
// there; those of steps that it will do again go, and so does what is no line, with a word about it.
#include <drivetrain/monitor.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include <drivetrain/services.h>
#include <drivetrain/toolkit/files/own_file.h>

namespace {

using namespace drivetrain;

class Jsonl : public Monitor {
 public:
  Jsonl(const NoOptions&, const Services& services) : log_(services.log) {}
  ~Jsonl() override { close(); }

  void on_event(const Event& event) override {
    if (event.type == "run_begin") open(event.data);
    if (event.type == "step") write_line(event);
    if (event.type == "run_end") close();
  }

  // A checkpoint begins: its steps are done for good, and their lines have to be there as long as it is.
  void state(StateVisitor&) override {
    if (file_ < 0 || ::fsync(file_) == 0 || errno == EINVAL || errno == ENOTSUP) return;  // pipes and devices cannot
    throw fail(ErrorCode::io, "monitor/jsonl: cannot sync ", path_, ": ", std::strerror(errno),
               "\n   check the disk, or choose another output_dir");
  }

 private:
  void open(const Value& facts) {
    const Value* folder = facts.find("output_dir");
    if (!folder) throw fail(ErrorCode::internal, "monitor/jsonl: run_begin names no output_dir");
    close();
    path_ = folder->as_string() + "/metrics.jsonl";
    file_ = open_to_append(path_, O_RDWR | O_CREAT);
    if (file_ < 0) throw fail(ErrorCode::io, "monitor/jsonl: cannot open ", path_, ": ", append_problem(path_, errno));
    if (const Value* first = facts.find("first_step")) drop_from(first->as_int());
  }

  // Steps ascend, so the first line of this step is where the file ends from now on. What a power cut has torn lies
  // behind the last checkpoint, unless the disk lost what it had promised to keep.
  void drop_from(int64_t first_step) {
    struct stat status = {};
    if (::fstat(file_, &status) != 0 || status.st_size == 0) return;
    std::ifstream lines(path_, std::ios::binary);
    std::string kept, missing, line;
    int64_t last = 0, torn = 0;
    while (std::getline(lines, line)) {
      const std::optional<int64_t> step = lines.eof() ? std::nullopt : step_of(line);
      if (!step) {
        ++torn;
        continue;
      }
      if (*step >= first_step) break;
      note_missing(missing, last, *step);
      last = std::max(last, *step);
      kept += line + "\n";
    }
    note_missing(missing, last, first_step);
    if (torn > 0)
      log_.warning(concat(path_, ": ", torn, torn == 1 ? " line is" : " lines are",
                          " no JSON, as after a power cut, and removed; the file ends at step ", last, " now"));
    if (!missing.empty()) log_.warning(concat(path_, ": lines of steps are missing: ", missing));
    put_in_place(kept, static_cast<uint64_t>(status.st_size), torn > 0, first_step);
  }

  static void note_missing(std::string& missing, int64_t before, int64_t next) {
    constexpr size_t kMost = 200;
    if (before == 0 || next <= before + 1) return;  // a file that begins late is one that was begun late
    if (missing.size() > kMost) return;
    missing += (missing.empty() ? "" : ", ") + std::to_string(before + 1);
    if (next > before + 2) missing += "-" + std::to_string(next - 1);
  }

  // The beginning of a file is its beginning still; what is left of one with holes is written anew.
  void put_in_place(const std::string& kept, uint64_t size, bool has_holes, int64_t first_step) {
    if (kept.size() == size) return;
    const auto failed = [&] {
      return fail(ErrorCode::io, "monitor/jsonl: cannot cut ", path_, " at step ", first_step, ": ",
                  std::strerror(errno), "\n   the run goes on there: it must be a file that this user may write");
    };
    const bool moved = !has_holes || move_up(kept, same_bytes(kept));
    if (!moved || ::ftruncate(file_, static_cast<off_t>(kept.size())) != 0) throw failed();
    if (has_holes && ::fsync(file_) != 0) throw failed();
  }

  // How much of it the file begins with.
  size_t same_bytes(const std::string& kept) const {
    std::ifstream file(path_, std::ios::binary);
    std::string beginning(kept.size(), '\0');
    file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
    return static_cast<size_t>(std::mismatch(kept.begin(), kept.end(), beginning.begin()).first - kept.begin());
  }

  // Over what was there, from front to back: whoever is killed meanwhile has lost no line, though some stand twice.
  bool move_up(const std::string& kept, size_t from) const {
    const int flags = ::fcntl(file_, F_GETFL);
    if (from == kept.size()) return true;
    if (flags < 0 || ::fcntl(file_, F_SETFL, flags & ~O_APPEND) != 0) return false;
    bool written = true;
    for (size_t done = from; done < kept.size() && written;) {
      const ssize_t n = ::pwrite(file_, kept.data() + done, kept.size() - done, static_cast<off_t>(done));
      written = n > 0 || (n < 0 && errno == EINTR);
      if (n > 0) done += static_cast<size_t>(n);
    }
    return ::fcntl(file_, F_SETFL, flags) == 0 && written;
  }

  // 0: a line without a step, which is not ours and stays. Nothing: no JSON.
  static std::optional<int64_t> step_of(const std::string& line) {
    try {
      const Value data = parse_json(line, "line");
      const Value* step = data.is_object() ? data.find("step") : nullptr;
      return step && step->is_int() ? step->as_int() : 0;
    } catch (const Error&) {
      return std::nullopt;
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

  Log& log_;
  std::string path_;
  int file_ = -1;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Monitor, "jsonl", Jsonl)
