#include "megatron.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain::megatron {

std::vector<RowRange> even_share(const std::vector<RowRange>& positions, int64_t ranks, int64_t index) {
  int64_t count = 0;
  for (const RowRange& range : positions) count += range.count;
  if (count % ranks != 0)
    throw fail(ErrorCode::config, "tensor_parallel/megatron: sequence_parallel shares ", count, " positions over ",
               ranks, " ranks, and they do not divide. Use sequences of a multiple of ", ranks,
               ", or turn sequence_parallel off");
  return part_of(positions, ranks, index);
}

namespace {

// Where positions are cut, a parameter that no cut layer has is one of a unit of somebody else's, which computes with
// this rank's positions. Whoever sums its gradient says so with Param::reduction_axes.
void mark_untold(const UnitList& units) {
  const auto has_axis = [](const std::vector<std::string>& axes) {
    return std::count(axes.begin(), axes.end(), kAxis) > 0;
  };
  for (const ParamPtr& param : units.all()) {
    Layout& layout = param->layout;
    const bool is_cut =
        std::any_of(layout.dims.begin(), layout.dims.end(), [&](const DimSplit& d) { return has_axis(d.axes); });
    if (!is_cut && !has_axis(layout.partial_over) && !param->reduction_axes) layout.partial_over.emplace_back(kAxis);
  }
}

constexpr int64_t kMostRanks = 1 << 20;  // of a run

OptionTable tp_table() {
  return table<AutoTp>()
      .field("tp_size", &AutoTp::tp_size, "size under its second name in DeepSpeed")
      .range(0, kMostRanks)
      .field("tp_grain_size", &AutoTp::tp_grain_size, "without effect: see make_vocab_size_divisible_by")
      .at_least(1);
}

void choose_size(MegatronOptions& o) {
  if (!o.autotp.tp_size) return;
  if (o.size > 1 && o.size != *o.autotp.tp_size)
    throw fail(ErrorCode::config, "tensor_parallel/megatron: size ", o.size, " and tp.tp_size ", *o.autotp.tp_size,
               " mean the same and differ; remove one of them");
  o.size = *o.autotp.tp_size;
}

class Megatron : public TensorParallel {
 public:
  using Options = MegatronOptions;
  static OptionTable options() {
    return table<Options>()
        .field("size", &Options::size, "ranks that share every layer; 1 or 0: off")
        .alias("autotp_size")
        .alias("tensor_model_parallel_size")
        .range(0, kMostRanks)
        .field("sequence_parallel", &Options::sequence_parallel,
               "what lies between the cut layers is cut by positions: less activation memory, the same traffic")
        .field("keep_gathered", &Options::keep_gathered,
               "under sequence_parallel: keeps gathered inputs until backward instead of gathering them again")
        .field("make_vocab_size_divisible_by", &Options::make_vocab_size_divisible_by,
               "rows of the vocabulary per rank are a multiple of it; padding, if size is over 1")
        .at_least(1)
        .group("tp", &Options::autotp, tp_table(), "DeepSpeed's object of that name")
        .renamed("tensor_parallel", "tp")
        .field("dtype", &Options::dtype, "without effect: the type is the precision's")
        .field("tp_overlap_comm", &Options::tp_overlap_comm, "without effect: sums are waited for where they are used")
        .field("preset_model", &Options::preset_model, "without effect: the model says how its layers are cut")
        .field("partition_config", &Options::partition_config, "without effect: the model says how its layers are cut")
        .field("injection_policy_tuple", &Options::injection_policy_tuple,
               "without effect: the model says how its layers are cut")
        .field("keep_module_on_host", &Options::keep_module_on_host,
               "without effect: a rank makes its own part of the weights and nothing else")
        .field("replace_with_kernel_inject", &Options::replace_with_kernel_inject, "without effect: for inference")
        .renamed("kernel_inject", "replace_with_kernel_inject")
        .finish(choose_size);
  }
  Megatron(const Options& options, const Services& services) : options_(options), services_(services) {}

  void plan(PlanContext& ctx) override {
    cuts_positions_ = cuts_positions(options_, ctx.run());
    megatron::plan(options_, ctx);
  }

  void build(Builder& builder) override {
    if (options_.ranks() == 1) return;
    const int64_t ranks = options_.ranks(), index = builder.mesh.index(kAxis);
    exchange_ = std::make_shared<Exchange>(ranks, index, cuts_positions_);
    const Cut cut{exchange_, options_.keep_gathered, options_.make_vocab_size_divisible_by};
    builder.layers = cut_layers(builder.layers, cut);
    if (cuts_positions_)
      builder.activation_cuts.emplace_back(
          [=](const auto& positions, const auto&) { return even_share(positions, ranks, index); });
  }

  void attach(UnitList& units) override {
    if (!exchange_) return;
    exchange_->attach(services_.mesh->group(kAxis));
    if (cuts_positions_) mark_untold(units);
  }

 private:
  const Options options_;
  const Services& services_;
  std::shared_ptr<Exchange> exchange_;
  bool cuts_positions_ = false;
};

}  // namespace
}  // namespace drivetrain::megatron

DRIVETRAIN_PLUGIN(drivetrain::TensorParallel, "megatron", drivetrain::megatron::Megatron)
