// RunPlan as JSON.
#include <algorithm>

#include <drivetrain/recompute.h>

#include <drivetrain/toolkit/dtype_name.h>
#include "plan/run_plan.h"
#include "report/memory_plan.h"

namespace drivetrain {
namespace {

template <class Item, class ToValue>
Value list_of(const std::vector<Item>& items, const ToValue& to_value) {
  Value list = Value::array();
  for (const Item& item : items) list.items().push_back(to_value(item));
  return list;
}

Value object_of(std::vector<Value::Member> members) { return Value(Value::Object(std::move(members))); }

Value batch_value(const RunPlan& plan) {
  return object_of({{"train_batch_size", plan.batch.train_batch_size},
                    {"micro_batch_size", plan.batch.micro_batch_size},
                    {"accumulation", plan.batch.accumulation},
                    {"ranks", plan.mesh.batch_ranks()}});
}

// null where planning did not come to know it.
template <class T>
Value fact_value(const Fact<T>& fact) {
  return fact.known() ? Value(fact.value()) : Value();
}

Value model_value(const ModelFacts& model, const Fact<int64_t>& seq_length) {
  const auto windowed = [](const ModelFacts::Windowed& layers) {
    return object_of({{"window", layers.window}, {"flops_per_token_S", layers.flops_per_token_S}});
  };
  const ModelFacts::Mixture& m = model.mixture;
  return object_of(
      {{"parameters", model.parameters},
       {"parameters_active", model.parameters_active > 0 ? model.parameters_active : model.parameters},
       {"mixture", m.experts == 0 ? Value()
                                  : object_of({{"experts", m.experts},
                                               {"experts_per_token", m.chosen},
                                               {"layers", m.layers},
                                               {"parameters", m.parameters}})},
       {"num_layers", model.num_layers},
       {"hidden_size", model.hidden_size},
       {"num_attention_heads", fact_value(model.num_attention_heads)},
       {"num_query_groups", fact_value(model.num_query_groups)},
       {"head_dim", fact_value(model.head_dim)},
       {"ffn_hidden_size", fact_value(model.ffn_hidden_size)},
       {"vocab_size", model.vocab_size},
       {"max_position_embeddings", model.max_position_embeddings},
       {"attention_dropout", model.attention_dropout},
       {"hidden_dropout", model.hidden_dropout},
       {"flops_per_token_fixed", model.flops_per_token_fixed},
       {"flops_per_token_S", model.flops_per_token_S},
       {"windowed", list_of(model.windowed, windowed)},
       {"flops_per_token",
        seq_length.known() ? Value(model.flops_per_token(static_cast<double>(seq_length.value()))) : Value()},
       {"flops_formula", model.flops_formula}});
}

Value run_value(const RunFacts& run) {
  return object_of({{"world_size", run.world_size},
                    {"device", run.device},
                    {"training", run.training},
                    {"train_steps", run.train_steps},
                    {"seq_length", fact_value(run.seq_length)},
                    {"seed", static_cast<int64_t>(run.seed)},
                    {"reduce_every", run.reduce_every ? Value(*run.reduce_every) : Value()},
                    {"rest_ranks", fact_value(run.rest_ranks)},
                    {"joined_ranks", fact_value(run.joined_ranks)},
                    {"position_ranks", fact_value(run.position_ranks)},
                    {"rank_share", fact_value(run.rank_share)},
                    {"rank_trained", fact_value(run.rank_trained)},
                    {"rank_layers", fact_value(run.rank_layers)},
                    {"rank_positions", fact_value(run.rank_positions)},
                    {"micro_batches_in_flight", fact_value(run.micro_batches_in_flight)}});
}

Value data_value(const DatasetFacts& data) {
  return object_of({{"seq_length", data.seq_length},
                    {"steps", data.steps < 0 ? Value() : Value(data.steps)},
                    {"validation", data.validation},
                    {"documents", data.documents},
                    {"notes", data.notes}});
}

Value mesh_value(const MeshPlan& mesh) {
  Value axes = Value::array();
  int64_t stride = 1;
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    const Axis& axis = mesh.axes[i];
    const auto& cuts = mesh.batch_axes;
    axes.items().push_back(object_of({{"axis", axis.name},
                                      {"size", axis.size},
                                      {"ranks_apart", stride},
                                      {"by", mesh.owners[i]},
                                      {"sums_gradients", axis.joins_gradients},
                                      {"cuts_batch", std::find(cuts.begin(), cuts.end(), axis.name) != cuts.end()}}));
    stride *= axis.size;
  }
  return axes;
}

Value param_groups_value(const std::vector<PlannedParamGroup>& groups) {
  const auto rate = [](const std::optional<double>& value) { return value ? Value(*value) : Value(); };
  return list_of(groups, [&](const PlannedParamGroup& group) {
    return object_of({{"group", group.name},
                      {"what", group.what},
                      {"lr", rate(group.lr)},
                      {"weight_decay", rate(group.weight_decay)},
                      {"frozen", group.frozen},
                      {"tensors", group.tensors},
                      {"parameters", group.elements}});
  });
}

Value dtypes_value(const DtypePlan& dtypes) {
  const auto one = [](at::ScalarType type, const std::string& by) {
    return object_of({{"type", dtype_name(type)}, {"by", by}});
  };
  return object_of({{"parameter", one(dtypes.types.param, dtypes.precision)},
                    {"compute", one(dtypes.types.param, dtypes.precision)},
                    {"gradient", one(dtypes.types.grad, dtypes.gradient)},
                    {"reduce", one(dtypes.types.reduce, dtypes.reduce)},
                    {"optimizer", one(dtypes.types.master, dtypes.precision)}});
}

Value placement_value(const std::vector<PlacedPiece>& placement) {
  double cost = 0;
  for (const PlacedPiece& piece : placement) cost += piece.cost;
  return list_of(placement, [&](const PlacedPiece& piece) {
    return object_of({{"stage", piece.stage},
                      {"chunk", piece.chunk},
                      {"first", piece.first},
                      {"last", piece.last},
                      {"first_unit", piece.first_unit},
                      {"last_unit", piece.last_unit},
                      {"cost", piece.cost},
                      {"cost_share", cost > 0 ? piece.cost / cost : 0.0},
                      {"parameters", piece.parameters}});
  });
}

Value tied_value(const std::map<std::string, std::vector<int64_t>>& tied) {
  Value value = Value::object();
  for (const auto& [name, stages] : tied) value.set(name, list_of(stages, [](int64_t stage) { return Value(stage); }));
  return value;
}

Value positions_value(const PositionPlan& positions) {
  const auto ranges = [](const std::vector<RowRange>& list) {
    return list_of(list, [](const RowRange& range) {
      return object_of({{"first", range.first}, {"count", range.count}});
    });
  };
  return object_of({{"batch", ranges(positions.batch)}, {"activations", ranges(positions.activations)}});
}

Value parts_value(const StageMemory& stage) {
  return list_of(stage.parts, [](const PlanRecord::Memory& m) {
    return object_of({{"class", memory_class_name(m.memory_class)},
                      {"by", m.by},
                      {"what", m.what},
                      {"bytes", m.bytes},
                      {"on_host", m.on_host}});
  });
}

// What the optimizer does beside reading and writing what it holds.
Value update_value(const UpdateWork& update) {
  const auto product = [](const UpdateWork::Product& p) {
    return object_of({{"dtype", p.dtype}, {"rows", p.rows}, {"out", p.out}, {"in", p.in}, {"count", p.count}});
  };
  return object_of({{"products", list_of(update.products, product)}, {"passed_bytes", update.passed_bytes}});
}

// Of the ranks of each stage, by class.
Value stages_value(const RunPlan& plan) {
  Value stages = Value::array();
  for (const PlannedMemory& memory : memory_by_stage(plan)) {
    const auto stage = static_cast<int64_t>(stages.items().size());
    const std::vector<int64_t> ranks = ranks_of_stage(plan, stage);
    Value value = object_of({{"stage", stage},
                             {"ranks", static_cast<int64_t>(ranks.size())},
                             {"first_rank", ranks.empty() ? 0 : ranks.front()},
                             {"last_rank", ranks.empty() ? 0 : ranks.back()}});
    for (size_t c = 0; c < memory.bytes.size(); ++c)
      value.set(memory_class_name(static_cast<MemoryClass>(c)), memory.bytes[c]);
    value.set("states", memory.states());
    value.set("working", memory.working);
    value.set("slack", memory.slack);
    value.set("together", memory.together());
    value.set("on_device", memory.on_device()), value.set("on_host", memory.on_host());
    value.set("update", update_value(plan.stage_memories[static_cast<size_t>(stage)].update));
    value.set("parts", parts_value(plan.stage_memories[static_cast<size_t>(stage)]));
    stages.items().push_back(std::move(value));
  }
  return stages;
}

Value memory_value(const RunPlan& plan) {
  const PlannedMemory memory = planned_memory(plan);
  const auto parameters = static_cast<double>(std::max<int64_t>(plan.model.parameters, 1));
  const auto row = [&](double bytes) {
    return object_of({{"bytes", bytes}, {"bytes_per_parameter", bytes / parameters}});
  };
  Value value = Value::object();
  for (const MemoryClass c : {MemoryClass::parameters, MemoryClass::gradients, MemoryClass::optimizer,
                              MemoryClass::buffers, MemoryClass::activations})
    value.set(memory_class_name(c), row(memory[c])).set("by", memory.sources[static_cast<size_t>(c)]);
  value.set("working", row(memory.working)).set("by", memory.working_source);
  value.set("slack", row(memory.slack));
  value.set("model_states", row(memory.states()));
  value.set("model_states_on_host", row(memory.states_on_host()));
  value.set("together", row(memory.together()));
  value.set("on_device", row(memory.on_device()));
  value.set("on_host", row(memory.on_host())).set("by", memory.host_source);
  value.set("stages", stages_value(plan));
  value.set("updated_elements", plan.updated_elements);
  value.set("optimizer_bytes_per_element", plan.optimizer_bytes_per_element);
  const CheckpointBytes checkpoint = checkpoint_bytes(plan);
  value.set("checkpoint", object_of({{"bytes", checkpoint.whole}, {"bytes_of_rank", checkpoint.of_rank}}));
  return value;
}

const char* beside_name(HostTraffic::Beside beside) {
  switch (beside) {
    case HostTraffic::Beside::forward:
      return "forward";
    case HostTraffic::Beside::backward:
      return "backward";
    case HostTraffic::Beside::update:
      return "update";
    case HostTraffic::Beside::nothing:
      break;
  }
  return "nothing";
}

Value traffic_value(const RunPlan& plan) {
  std::map<std::string, double> sums;
  for (const auto& t : plan.traffics) sums[t.axis] += t.bytes;
  Value axes = Value::object();
  for (const Axis& axis : plan.mesh.axes) axes.set(axis.name, sums[axis.name]);
  const auto part = [](const PlanRecord::Traffic& t) {
    return object_of({{"axis", t.axis}, {"by", t.by}, {"what", t.what}, {"bytes", t.bytes}});
  };
  const auto copies = [](const PlanRecord::Copies& c) {
    return object_of({{"by", c.by},
                      {"what", c.traffic.what},
                      {"bytes", c.traffic.bytes},
                      {"micro_batches", c.traffic.micro_batches},
                      {"beside", beside_name(c.traffic.beside)}});
  };
  return object_of({{"bytes_by_axis", axes},
                    {"host_traffic", list_of(plan.copies, copies)},
                    {"parts", list_of(plan.traffics, part)},
                    {"recompute_sends_more", !plan.id_of(Recompute::kKind).empty()}});
}

Value schedule_value(const RunPlan& plan) {
  const PlannedPlugin* const schedule = plan.plugin(Schedule::kKind);
  Value value = object_of({{"name", schedule ? Value(schedule->name) : Value()},
                           {"stages", plan.schedule.stages},
                           {"chunks", plan.schedule.chunks},
                           {"micro_batches", plan.batch.accumulation},
                           {"slots", list_of(plan.schedule.slots, [](int64_t slots) { return Value(slots); })}});
  if (const auto& line = plan.schedule.timeline) {
    value.set("bubble", line->bubble());
    value.set("makespan", line->makespan);
    value.set("busy", list_of(line->stages, [](const Timeline::Stage& stage) { return Value(stage.busy); }));
    value.set("peak_in_flight",
              list_of(line->stages, [](const Timeline::Stage& stage) { return Value(stage.peak_in_flight); }));
  }
  return value;
}

}  // namespace

Value RunPlan::to_json() const {
  const auto text = [](const std::string& line) { return Value(line); };
  const auto chosen = [](const PlannedPlugin& plugin) {
    return object_of({{"id", plugin.id()}, {"enabled", plugin.enabled}});
  };
  return object_of({{"settings", run_settings_table().to_value(&settings)},
                    {"rank", rank},
                    {"run", run_value(run)},
                    {"batch", batch_value(*this)},
                    {"model", model_value(model, run.seq_length)},
                    {"data", data_value(data)},
                    {"plugins", list_of(plugins, chosen)},
                    {"nesting", list_of(nesting, text)},
                    {"mesh", mesh_value(mesh)},
                    {"dtypes", dtypes_value(dtypes)},
                    {"placement", placement_value(placement)},
                    {"tied_parameters", tied_value(tied_stages)},
                    {"param_groups", param_groups_value(param_groups)},
                    {"positions", positions_value(positions)},
                    {"memory", memory_value(*this)},
                    {"traffic", traffic_value(*this)},
                    {"schedule", schedule_value(*this)},
                    {"capture", object_of({{"on", capture.on}, {"why_not", capture.why_not}})},
                    {"notes", list_of(notes, text)}});
}

}  // namespace drivetrain
