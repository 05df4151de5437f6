#include "plan/activation_plan.h"

#include <algorithm>
#include <optional>

#include "memory/cpu_allocator.h"
#include "plugin_calls/plugin_call.h"
#include "step/stage_messages.h"

namespace drivetrain {
namespace {

// Bytes as they are asked for, and as the device's allocator hands them out.
struct Bytes {
  double asked = 0, given = 0;
  Bytes& operator+=(const Bytes& b) { return asked += b.asked, given += b.given, *this; }
  Bytes& operator-=(const Bytes& b) { return asked -= b.asked, given -= b.given, *this; }
  Bytes times(double count) const { return {count * asked, count * given}; }
};

// LibTorch's allocator on CUDA hands out multiples of 512 bytes. Of the CPU's, small blocks are not counted.
double given_bytes(double bytes, bool on_cpu) {
  if (!on_cpu) return std::ceil(bytes / 512) * 512;
  const int64_t block = cpu_block_bytes(static_cast<int64_t>(bytes));
  return block > 0 ? static_cast<double>(block) : bytes;
}

Bytes bytes_of(const TensorSizes& sizes, bool on_cpu) {
  Bytes sum;
  for (const auto& [bytes, count] : sizes.counts()) sum += {bytes * count, given_bytes(bytes, on_cpu) * count};
  return sum;
}

VisitShape visit_shape(const PreparedRun& run) {
  const RunPlan& plan = run.plan;
  const auto count = [](const std::vector<RowRange>& ranges) {
    double sum = 0;
    for (const RowRange& range : ranges) sum += static_cast<double>(range.count);
    return sum;
  };
  VisitShape shape;
  shape.rows = static_cast<double>(plan.batch.micro_batch_size);
  shape.tokens = shape.rows * count(plan.positions.batch);
  shape.rank_tokens = shape.rows * count(plan.positions.activations);
  shape.tensor_ranks = plan.run.tensor_ranks.value_or(1);
  shape.dtype = run.services->dtypes.param, shape.grad = run.services->dtypes.grad;
  shape.on_cpu = run.services->device.is_cpu();
  return shape;
}

struct PlannedUnit {
  Bytes kept, working, inputs;
  bool again = false;  // its forward runs again in its backward
};

// Nothing if it is a block that does not say.
std::optional<PlannedUnit> planned_unit(const PreparedRun& run, const Unit& unit, const VisitShape& shape, bool last) {
  const Recompute* const policy = last ? nullptr : run.plugins.recompute.get();
  const std::string id = run.plan.id_of(Recompute::kKind), model = run.plan.id_of(Model::kKind);
  const KeepOfRegion keep = [&](std::string_view region) {
    if (!run.plugins.recompute) return Keep::all;
    return plugin_call({id, "keep", unit.name()}, [&] { return run.plugins.recompute->keep({unit.name(), region}); });
  };
  const auto memory = plugin_call({model, "visit_memory", unit.name()}, [&] { return unit.visit_memory(shape, keep); });
  if (!memory) return unit.is_block() ? std::nullopt : std::optional(PlannedUnit());
  PlannedUnit planned{bytes_of(memory->kept, shape.on_cpu), bytes_of(memory->working, shape.on_cpu),
                      bytes_of(memory->inputs, shape.on_cpu), policy && keep("") != Keep::all};
  if (planned.again && !policy->leaves_inputs_on_device()) planned.inputs = {};
  return planned;
}

// What goes between the stages of a pipeline: what a rank has of a micro-batch between two layers.
struct PlannedMessages {
  std::optional<HeldMessages> held;  // nothing: there are no other stages
  Bytes each;
  Bytes now() const { return held ? each.times(static_cast<double>(held->count())) : Bytes(); }
};

PlannedMessages planned_messages(const PreparedRun& run, int64_t stage, const VisitShape& shape) {
  if (run.plan.schedule.stages < 2) return {};
  const double bytes = shape.rank_tokens * static_cast<double>(run.plan.model.hidden_size) * shape.element();
  return {HeldMessages(*run.plugins.schedule, stage, run.plan.batch.accumulation),
          {bytes, given_bytes(bytes, shape.on_cpu)}};
}

// Walks through a program and remembers the fullest moment.
class Walk {
 public:
  Walk(const UnitList& units, std::vector<PlannedUnit> planned, PlannedMessages messages)
      : units_(units), planned_(std::move(planned)), messages_(std::move(messages)) {}

  void through(const Program& program, const std::vector<ChunkUnits>& chunks) {
    for (const Instr& instr : program) {
      if (messages_.held) messages_.held->pass(instr);
      const ChunkUnits& chunk = chunks.at(static_cast<size_t>(instr.chunk));
      if (instr.op == Op::forward)
        for (int64_t u = chunk.first; u < chunk.last; ++u) live_ += held(u);
      if (instr.op == Op::backward || instr.op == Op::backward_input)
        for (int64_t u = chunk.last; u-- > chunk.first;) backward(u, instr.op == Op::backward);
      if (instr.op == Op::backward_weight)
        for (int64_t u = chunk.first; u < chunk.last; ++u) live_ -= planned_[static_cast<size_t>(u)].kept;
    }
  }

  ActivationPlan result() const {
    ActivationPlan plan;
    plan.kept = most_kept_.asked, plan.working = most_working_.asked, plan.messages = most_messages_.asked;
    plan.slack = most() - plan.kept - plan.working - plan.messages;
    if (most_unit_ >= 0) plan.working_source = units_.units[static_cast<size_t>(most_unit_)]->name() + ", backward";
    return plan;
  }

 private:
  const Bytes& held(int64_t u) const {
    const PlannedUnit& unit = planned_[static_cast<size_t>(u)];
    return unit.again ? unit.inputs : unit.kept;
  }

  void backward(int64_t u, bool whole) {
    const PlannedUnit& unit = planned_[static_cast<size_t>(u)];
    live_ -= held(u);
    live_ += unit.kept;
    const Bytes messages = messages_.now();
    if (live_.given + unit.working.given + messages.given > most())
      most_kept_ = live_, most_working_ = unit.working, most_messages_ = messages, most_unit_ = u;
    if (whole) live_ -= unit.kept;
  }

  double most() const { return most_kept_.given + most_working_.given + most_messages_.given; }

  const UnitList& units_;
  const std::vector<PlannedUnit> planned_;
  PlannedMessages messages_;
  Bytes live_, most_kept_, most_working_, most_messages_;
  int64_t most_unit_ = -1;
};

std::string source_of(const RunPlan& plan, int64_t stage, int64_t again, const VisitShape& shape) {
  const int64_t chunks = plan.schedule.chunks, blocks = plan.by_stage(&PlacedPiece::blocks)[stage];
  return concat(plan.id_of(Model::kKind), ": ", plan.schedule.slots.at(static_cast<size_t>(stage)), " in flight x ",
                blocks, " blocks", plan.schedule.stages > 1 ? concat(" of stage ", stage) : "",
                chunks > 1 ? concat(" in ", chunks, " chunks") : "", " x ", static_cast<int64_t>(shape.tokens),
                " tokens", again > 0 ? concat(", ", again, " of them recomputed, one of these in full") : "");
}

}  // namespace

ActivationPlan plan_activations(const PreparedRun& run, int64_t stage, const UnitList& units,
                                const std::vector<ChunkUnits>& chunks) {
  const RunPlan& plan = run.plan;
  if (!plan.run.training || !plan.run.seq_length.known()) return {};
  const VisitShape shape = visit_shape(run);
  const std::string last = plan.placement.back().last_unit;
  std::vector<PlannedUnit> planned;
  int64_t again = 0;
  for (const UnitPtr& unit : units.units) {
    const auto one = planned_unit(run, *unit, shape, unit->name() == last);
    if (!one) return {};
    planned.push_back(*one), again += one->again;
  }
  Walk walk(units, std::move(planned), planned_messages(run, stage, shape));
  walk.through(run.plugins.schedule->program(stage, plan.batch.accumulation, Pass::train), chunks);
  ActivationPlan result = walk.result();
  if (result.kept > 0) result.source = source_of(plan, stage, again, shape);
  return result;
}

}  // namespace drivetrain
