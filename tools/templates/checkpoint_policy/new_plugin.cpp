// Checkpoints at steps that grow by a factor: 10, 20, 40, 80, ... and after the last step.
#include <drivetrain/checkpoint_policy.h>
#include <drivetrain/services.h>

namespace {

using namespace drivetrain;

class NewPlugin : public CheckpointPolicy {
 public:
  struct Options {
    int64_t first = 10, factor = 2, keep = 3;
  };
  static OptionTable options() {
    return table<Options>()
        .field("first", &Options::first, "the first step that is saved")
        .at_least(1)
        .field("factor", &Options::factor, "from one saved step to the next")
        .at_least(2)
        .field("keep", &Options::keep, "how many of the newest checkpoints stay; 0: all")
        .at_least(0);
  }
  NewPlugin(const Options& options, const Services&) : options_(options) {}

  // Asked after every step on every rank. The answer follows from the step alone, so it is the same everywhere, and
  // there is no state to save.
  bool due(const SaveMoment& moment) override {
    int64_t step = options_.first;
    while (step < moment.step && step <= moment.step / options_.factor) step *= options_.factor;
    return moment.done || step == moment.step;
  }

  // Tags come newest first.
  std::vector<bool> keep(const std::vector<StoredTag>& tags) override {
    std::vector<bool> kept;
    for (size_t i = 0; i < tags.size(); ++i)
      kept.push_back(options_.keep == 0 || i < static_cast<size_t>(options_.keep));
    return kept;
  }

 private:
  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::CheckpointPolicy, "new_plugin", NewPlugin)
