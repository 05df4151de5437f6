// DeepSpeed's section tensorboard: an event file in output_path/job_name, every figure of a step over the number of
// samples. A run that goes on from a checkpoint begins a further file, which tells readers from where it replaces the
// earlier ones.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include <drivetrain/plan_context.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/monitor/scalars.h>

#include "event_file.h"

namespace {

using namespace drivetrain;
namespace tb = drivetrain::tensorboard;

constexpr const char* kPlugin = "monitor/tensorboard";

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class TensorBoard : public Monitor {
 public:
  using Options = ScalarOptions;
  static OptionTable options() { return scalar_options_table(); }
  TensorBoard(const Options& options, const Services&) : options_(options) {}
  ~TensorBoard() override { close(); }

  void plan(PlanContext& ctx) override { samples_per_step_ = ctx.run().train_batch_size.value_or(1); }

  void on_event(const Event& event) override {
    if (event.type == "run_begin") open(event.data);
    if (event.type == "step") write_step(event);
    if (event.type == "run_end") close();
  }

 private:
  void open(const Value& facts) {
    close();
    const std::string folder = scalar_folder(options_, facts, kPlugin);
    const double now = wall_time();
    char host[256] = "host";
    ::gethostname(host, sizeof host - 1);
    // A second run within the same second gets a name of its own.
    for (int i = 0; file_ < 0; ++i) {
      path_ = concat(folder, "/events.out.tfevents.", static_cast<int64_t>(now), ".", host, ".", ::getpid(), ".", i);
      file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
      if (file_ < 0 && errno != EEXIST)
        throw fail(ErrorCode::io, kPlugin, ": cannot open ", path_, ": ", std::strerror(errno),
                   "\n   choose another output_path");
    }
    const Value* const first = facts.find("first_step");
    write(tb::file_version(now) +
              tb::event(now, ((first ? first->as_int() : 1) - 1) * samples_per_step_ + 1, tb::session_start()),
          0);
  }

  void write_step(const Event& event) {
    if (file_ < 0) throw fail(ErrorCode::internal, kPlugin, ": step ", event.step, " outside of a run");
    std::string values;
    for (const Scalar& scalar : scalars_of(event)) values += tb::summary_value(scalar.name, scalar.value);
    write(tb::event(wall_time(), event.step * samples_per_step_, tb::summary(values)), event.step);
  }

  void write(const std::string& bytes, int64_t step) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::write(file_, bytes.data() + done, bytes.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0)
        throw fail(ErrorCode::io, kPlugin, ": cannot write step ", step, " to ", path_, ": ", std::strerror(errno),
                   "\n   free some space or choose another output_path");
      done += static_cast<size_t>(n);
    }
  }

  void close() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }

  const Options options_;
  int64_t samples_per_step_ = 1;
  std::string path_;
  int file_ = -1;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Monitor, "tensorboard", TensorBoard)
