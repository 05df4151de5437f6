// Runs every n-th block of the model again in backward, and keeps all activations of the others.
//
// Source: Chen et al. 2016, "Training deep nets with sublinear memory cost". The numbers of a run do not change: a unit
// that runs again draws the same random numbers.
#include <drivetrain/recompute.h>

#include <set>

namespace {

using namespace drivetrain;

class NewPlugin : public Recompute {
 public:
  struct Options {
    int64_t every = 2;
  };
  static OptionTable options() {
    return table<Options>()
        .field("every", &Options::every, "one of so many blocks of a rank runs again; 1: all of them")
        .at_least(1);
  }
  NewPlugin(const Options& options, const Services&) : options_(options) {}

  void plan(PlanContext& ctx) override { ctx.capturable(); }

  // Once, with the units of this rank's stage: names are the same in every topology.
  void choose(const UnitList& units) override {
    int64_t blocks = 0;
    for (const UnitPtr& unit : units.units)
      if (unit->is_block() && blocks++ % options_.every == 0) chosen_.insert(unit->name());
  }

  // A region without a name is the whole unit. Any answer but `all` lets it run again.
  Keep keep(const Region& region) const override {
    return region.name.empty() && chosen_.contains(region.unit) ? Keep::input : Keep::all;
  }

 private:
  const Options options_;
  std::set<std::string> chosen_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Recompute, "new_plugin", NewPlugin)
