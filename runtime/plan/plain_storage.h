// The storage owner where no data_parallel plugin is chosen:
// every unit in one flat buffer, nothing shared, nothing reduced.
#pragma once

#include <drivetrain/data_parallel.h>
#include <drivetrain/planned_memory.h>
#include <drivetrain/toolkit/sharding/flat_unit.h>

#include <memory>

#include <drivetrain/toolkit/dtype_name.h>

namespace drivetrain {

class PlainStorage final : public DataParallel, public HoldsUnits {
 public:
  explicit PlainStorage(const Services& services) : services_(services) {}

  void plan(PlanContext& ctx) override {
    ctx.capturable();
    if (const int64_t parts = ctx.run().joined_ranks.value_or(1); parts > 1)
      ctx.refuse(concat("parts of one sequence are on ", parts, " ranks, and nobody sums their gradients. Leave ",
                        "\"data_parallel\" out, or choose a plugin that does"));
  }
  void plan_units(PlanContext& ctx, const PlannedStage& stage) const override {
    double all = 0;
    for (size_t u = 0; u < stage.units.units.size(); ++u)
      if (const auto params = stage.units.owned(u); !params.empty())
        all += static_cast<double>(FlatUnit::numel_of(params, stage.mesh, 1));
    const auto hold = [&](MemoryClass memory_class, const char* what, at::ScalarType type) {
      ctx.memory(memory_class, concat(what, ", ", dtype_name(type)), all * static_cast<double>(c10::elementSize(type)));
    };
    const Dtypes& types = services_.dtypes;
    hold(MemoryClass::parameters, "parameters", types.param);
    hold(MemoryClass::gradients, "gradients", types.grad);
    if (types.master != types.param) hold(MemoryClass::optimizer, "masters", types.master);
  }
  void attach(UnitList& units) override {
    for (size_t u = 0; u < units.units.size(); ++u) {
      const auto params = units.owned(u);
      FlatOptions options;
      options.device = services_.device;
      options.dtypes = services_.dtypes;
      if (!params.empty()) flats_.push_back(std::make_unique<FlatUnit>(params, *services_.mesh, options));
    }
  }
  void flush_grads(StepContext&) override {
    for (const auto& flat : flats_) flat->zero_unwritten_grads();
  }
  std::vector<Trainables> trainables() override {
    std::vector<Trainables> chunks;
    for (const auto& flat : flats_) chunks.push_back(flat->trainables());
    return chunks;
  }

 private:
  const Services& services_;
  std::vector<std::unique_ptr<FlatUnit>> flats_;
};

}  // namespace drivetrain
