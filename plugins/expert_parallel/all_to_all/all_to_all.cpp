#include "all_to_all.h"

namespace drivetrain::all_to_all {
namespace {

class AllToAll : public ExpertSharing {
 public:
  using Options = AllToAllOptions;
  static OptionTable options() { return option_table(); }
  AllToAll(const Options& options, const Services& services)
      : ExpertSharing("ep", options.size, services),
        options_(options),
        one_sided_(std::make_shared<OneSided>(services.rank == 0 ? &services.log : nullptr)) {}

  void plan(PlanContext& ctx) override {
    check_keys(options_, ctx);
    if (claim(ctx)) report_exchanges(options_, axis_, ctx);
  }

 protected:
  std::shared_ptr<Experts> share(std::shared_ptr<Experts> own) const override {
    return split_experts(std::move(own), ranks_, planned_imbalance(options_), one_sided_);
  }

 private:
  const Options options_;
  const std::shared_ptr<OneSided> one_sided_;
};

}  // namespace
}  // namespace drivetrain::all_to_all

DRIVETRAIN_PLUGIN(drivetrain::ExpertParallel, "all_to_all", drivetrain::all_to_all::AllToAll)
