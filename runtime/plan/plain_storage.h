// The storage owner where no data_parallel plugin is chosen:
// what is trained of a unit in one flat buffer, what is frozen in another, nothing shared, nothing reduced.
#pragma once

#include <drivetrain/data_parallel.h>
#include <drivetrain/toolkit/sharding/flat_unit.h>

#include <memory>

#include <drivetrain/toolkit/dtype_name.h>

namespace drivetrain {

class PlainStorage final : public DataParallel {
 public:
  explicit PlainStorage(const Services& services) : services_(services) {}

  void plan(PlanContext& ctx) override {
    ctx.capturable();
    if (const int64_t parts = ctx.run().joined_ranks.value_or(1); parts > 1)
      ctx.refuse(concat(ctx.run().position_ranks.value_or(1) == parts ? "parts of one sequence" : "parts of the batch",
                        " are on ", parts, " ranks, and nobody sums their gradients. Leave ",
                        "\"data_parallel\" out, or choose a plugin that does"));
  }
  bool plan_units(PlanContext& ctx, const PlannedStage& stage) const override {
    double trained = 0, frozen = 0, updated = 0;  // the first two with gaps
    for (size_t u = 0; u < stage.units.units.size(); ++u)
      for (const bool trainable : {true, false})
        if (const auto params = params_of(stage.units, u, trainable); !params.empty())
          (trainable ? trained : frozen) += static_cast<double>(FlatUnit::numel_of(params, stage.mesh, 1));
    for (const ParamPtr& param : stage.units.all())
      if (param->trainable) updated += static_cast<double>(param->layout.local_numel(stage.mesh));
    const auto hold = [&](MemoryClass memory_class, const char* what, double elements, at::ScalarType type) {
      ctx.memory(memory_class, concat(what, ", ", dtype_name(type)),
                 elements * static_cast<double>(c10::elementSize(type)));
    };
    const Dtypes& types = services_.dtypes;
    hold(MemoryClass::parameters, "parameters", trained + frozen, types.param);
    hold(MemoryClass::gradients, "gradients", trained, types.grad);
    if (types.master != types.param) hold(MemoryClass::optimizer, "masters", trained, types.master);
    ctx.updates(updated);
    return true;
  }
  void attach(UnitList& units) override {
    FlatOptions options;
    options.device = services_.device;
    options.dtypes = services_.dtypes;
    for (size_t u = 0; u < units.units.size(); ++u)
      for (const bool trainable : {true, false})
        if (const auto params = params_of(units, u, trainable); !params.empty())
          (trainable ? flats_ : frozen_).push_back(std::make_unique<FlatUnit>(params, *services_.mesh, options));
  }
  void flush_grads(StepContext&) override {
    for (const auto& flat : flats_) flat->zero_unwritten_grads();
  }
  std::vector<Trainables> trainables() override { return lists_of(flats_); }
  std::vector<Trainables> frozen() override { return lists_of(frozen_); }

 private:
  using Flats = std::vector<std::unique_ptr<FlatUnit>>;

  // Frozen ones have a buffer of their own, which has neither gradients nor masters.
  static std::vector<ParamPtr> params_of(const UnitList& units, size_t unit, bool trainable) {
    std::vector<ParamPtr> params = units.owned(unit);
    std::erase_if(params, [&](const ParamPtr& param) { return param->trainable != trainable; });
    return params;
  }
  static std::vector<Trainables> lists_of(const Flats& flats) {
    std::vector<Trainables> chunks;
    for (const auto& flat : flats) chunks.push_back(flat->trainables());
    return chunks;
  }

  const Services& services_;
  Flats flats_, frozen_;
};

}  // namespace drivetrain
