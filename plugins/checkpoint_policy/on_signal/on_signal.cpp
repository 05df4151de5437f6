// Saves when a signal stops the run, so that the same command goes on where it stopped. Keeps nothing but the newest,
// which always stays.
#include <drivetrain/checkpoint_policy.h>

#include <drivetrain/services.h>

namespace {

using namespace drivetrain;

class OnSignal : public CheckpointPolicy {
 public:
  OnSignal(const NoOptions&, const Services&) {}

  bool due(const SaveMoment& moment) override { return moment.signal != 0; }
  std::vector<bool> keep(const std::vector<StoredTag>& tags) override { return std::vector<bool>(tags.size(), false); }
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::CheckpointPolicy, "on_signal", OnSignal)
