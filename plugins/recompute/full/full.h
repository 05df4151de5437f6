// Whole blocks: they keep their inputs, and their forward runs again in their backward.
//
// Source: Chen et al. 2016, "Training deep nets with sublinear memory cost", with one block as the segment; DeepSpeed's
// activation checkpointing for the keys. Thread: main; keep also autograd's.
#pragma once

#include <optional>

#include <drivetrain/toolkit/recompute/recompute_blocks.h>

#include "options.h"

namespace drivetrain::full_recompute {

class Full : public Recompute {
 public:
  using Options = FullOptions;
  static OptionTable options() { return full_table(); }
  Full(const Options& options, const Services& services);

  void plan(PlanContext& ctx) override;
  void build(Builder& builder) override;
  void choose(const UnitList& units) override { blocks_.choose(units); }
  Keep keep(const Region& region) const override;
  std::unique_ptr<Held> hold(Tensors inputs) const override;
  bool leaves_inputs_on_device() const override { return !host_; }

 private:
  const Options options_;
  const Services& services_;
  BlockChoice blocks_;
  int64_t layer_ranks_ = 1;  // as far as `plan` knew
  std::optional<HostStash> host_;
};

}  // namespace drivetrain::full_recompute
