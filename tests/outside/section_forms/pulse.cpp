// Appends one mark to a file every so many steps.
#include <drivetrain/monitor.h>

#include <fstream>

class Pulse : public drivetrain::Monitor {
 public:
  struct Options {
    int64_t every = 1;
    int64_t stage = 1;
    std::string mark = "beat";
    std::string file = "pulse.txt";
  };
  static drivetrain::OptionTable options() {
    return drivetrain::table<Options>()
        .field("every", &Options::every, "steps between two marks")
        .at_least(0)
        .field("stage", &Options::stage, "0: none at all")
        .field("mark", &Options::mark, "what is written")
        .field("file", &Options::file, "where it is written")
        .path();
  }
  Pulse(const Options& options, const drivetrain::Services&) : options_(options) {}

  void on_event(const drivetrain::Event& event) override {
    if (event.type == "step" && event.step % options_.every == 0)
      std::ofstream(options_.file, std::ios::app) << options_.mark << "\n";
  }

 private:
  Options options_;
};

DRIVETRAIN_PLUGIN(drivetrain::Monitor, "pulse", Pulse)
