// Saves every `steps` steps, every `minutes` minutes and in the end; keeps the last few and every n-th forever.
#include <drivetrain/checkpoint_policy.h>

#include <drivetrain/services.h>

namespace {

using namespace drivetrain;

class Every : public CheckpointPolicy {
 public:
  struct Options {
    int64_t steps = 0, keep = 2, keep_every = 0;
    double minutes = 0;
    bool at_end = true;
  };
  static OptionTable options() {
    using O = Options;
    return table<O>()
        .field("steps", &O::steps, "a checkpoint after every so many steps; 0: none for that reason")
        .at_least(0)
        .field("minutes", &O::minutes,
               "a checkpoint when so many minutes have passed since the last one of this policy; 0: none "
               "for that reason")
        .at_least(0)
        .field("at_end", &O::at_end, "a checkpoint after the last step")
        .field("keep", &O::keep, "how many of the newest checkpoints stay; 0: all")
        .at_least(0)
        .field("keep_every", &O::keep_every, "checkpoints at multiples of so many steps stay forever; 0: none")
        .at_least(0);
  }
  Every(const Options& options, const Services&) : options_(options) {}

  bool due(const SaveMoment& moment) override {
    const bool by_steps = options_.steps > 0 && moment.step % options_.steps == 0;
    const bool by_time = options_.minutes > 0 && moment.seconds - saved_at_ >= 60 * options_.minutes;
    const bool due = by_steps || by_time || (options_.at_end && moment.done);
    if (due) saved_at_ = moment.seconds;
    return due;
  }

  std::vector<bool> keep(const std::vector<StoredTag>& tags) override {
    std::vector<bool> kept;
    for (size_t i = 0; i < tags.size(); ++i) {
      const bool among_last = options_.keep == 0 || i < static_cast<size_t>(options_.keep);
      kept.push_back(among_last || (options_.keep_every > 0 && tags[i].step % options_.keep_every == 0));
    }
    return kept;
  }

 private:
  const Options options_;
  double saved_at_ = 0;  // seconds since this start of the run: a restart begins to count anew
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::CheckpointPolicy, "every", Every)
