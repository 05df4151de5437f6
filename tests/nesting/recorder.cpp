// Writes down its calls, so that a test sees in which order the strategies of a run are called.
#include <fstream>
#include <string>

#include <drivetrain/services.h>
#include <drivetrain/strategy.h>

namespace {

using namespace drivetrain;

struct RecorderOptions {
  std::string name, file;
};

class Recorder final : public Strategy {
 public:
  using Options = RecorderOptions;
  static OptionTable options() {
    return table<Options>()
        .field("name", &Options::name, "of this one in the file")
        .field("file", &Options::file, "where calls are written, a line each: CALL NAME");
  }
  Recorder(const Options& options, const Services&) : options_(options) {}

  void plan(PlanContext&) override { call("plan"); }
  void build(Builder&) override { call("build"); }
  void attach(UnitList&) override { call("attach"); }
  void step_begin(StepContext&) override { call("step_begin"); }
  void before_forward(const Visit&, StepContext&) override { call("before_forward"); }
  void after_forward(const Visit&, StepContext&) override { call("after_forward"); }
  void before_backward(const Visit&, StepContext&) override { call("before_backward"); }
  void after_backward(const Visit&, StepContext&) override { call("after_backward"); }
  void flush_grads(StepContext&) override { call("flush_grads"); }
  void after_update(Trainables&, StepContext&) override { call("after_update"); }
  void step_end(StepContext&) override { call("step_end"); }

 private:
  void call(const char* name) const {
    std::ofstream(options_.file, std::ios::app) << name << ' ' << options_.name << '\n';
  }

  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Strategy, "recorder", Recorder)
