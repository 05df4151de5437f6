// Regions of blocks whose memory is large for their work run again; the products with the weights do not.
//
// Source: Korthikanti et al. 2022, "Reducing activation recomputation in large transformer models", section 5, for the
// attention between its projections; norms and activation functions likewise. Thread: main; keep also autograd's.
#include <drivetrain/recompute_blocks.h>

#include <drivetrain/error.h>

#include <algorithm>

namespace drivetrain {
namespace {

struct SelectiveOptions {
  std::vector<std::string> regions = {"norm", "attn.core", "mlp.act"};
  double fraction = 1;
};

class Selective : public Recompute {
 public:
  using Options = SelectiveOptions;
  static OptionTable options() {
    return table<Options>()
        .field(
            "regions", &Options::regions,
            "what runs again: norm, attn.core (attention between its projections), mlp.act (the activation function)")
        .one_of({"norm", "attn.core", "mlp.act"})
        .field("fraction", &Options::fraction, "share of a rank's blocks in which it does: the first ones")
        .range(0, 1);
  }
  Selective(const Options& options, const Services&) : options_(options), blocks_(options.fraction) {}

  void plan(PlanContext& ctx) override {
    ctx.capturable();
    if (!ctx.run().training) return;
    if (options_.regions.empty())
      return ctx.no_effect("regions",
                           "the list is empty: all activations are kept. It takes norm, attn.core and mlp.act");
    const int64_t all = ctx.run().rank_layers > 0 ? ctx.run().rank_layers : ctx.model().num_layers;
    const int64_t chosen = BlockChoice::count(options_.fraction, all);
    if (all > 0 && chosen == 0)
      return ctx.no_effect("fraction",
                           concat(options_.fraction, " of ", all, " blocks is none: all activations are kept"));
    if (names("attn.core"))
      ctx.cost(cost_of_attention(ctx, all > 0 ? static_cast<double>(chosen) / static_cast<double>(all) : 1));
  }

  void attach(UnitList& units) override { blocks_.choose(units); }

  Keep keep(const Region& region) const override {
    return !region.name.empty() && names(region.name) && blocks_.has(region.unit) ? Keep::input : Keep::all;
  }

 private:
  bool names(std::string_view region) const {
    return std::find(options_.regions.begin(), options_.regions.end(), region) != options_.regions.end();
  }

  static std::string cost_of_attention(const PlanContext& ctx, double share) {
    const double extra = forward_shares(ctx).attention * share;
    return concat(
        "the forward of attention runs twice",
        extra > 0 ? concat(": about ", percent(extra), " more work in a step") : "",
        ". An attention that keeps no scores gains no more by it than its output: with one, and long sequences, set "
        "\"regions\": [\"norm\", \"mlp.act\"]");
  }

  const Options options_;
  BlockChoice blocks_;
};

}  // namespace
}  // namespace drivetrain

DRIVETRAIN_PLUGIN(drivetrain::Recompute, "selective", drivetrain::Selective)
