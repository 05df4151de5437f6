// The learning rate as a staircase: after every so many updates it is multiplied by a factor.
#include <drivetrain/lr_schedule.h>

#include <cmath>

namespace {

using namespace drivetrain;

class NewPlugin : public LrSchedule {
 public:
  struct Options {
    int64_t every = 1000;
    double factor = 0.5;
  };
  static OptionTable options() {
    return table<Options>()
        .field("every", &Options::every, "updates after which the rate is multiplied")
        .at_least(1)
        .field("factor", &Options::factor, "what it is multiplied by")
        .range(0, 1);
  }
  NewPlugin(const Options& options, const Services&) : options_(options) {}

  // A function of its arguments alone: it needs no state to resume.
  Hyper at(const Progress& progress, const Hyper& base) const override {
    Hyper hyper = base;
    hyper.lr *= std::pow(options_.factor, static_cast<double>(progress.updates / options_.every));
    return hyper;
  }

 private:
  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::LrSchedule, "new_plugin", NewPlugin)
