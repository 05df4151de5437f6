#include <drivetrain/testkit/data_parallel/rank.h>

#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include <drivetrain/communicator.h>
#include <drivetrain/mesh.h>

#include <drivetrain/testkit/data_parallel/chain.h>
#include <drivetrain/testkit/kit/axes.h>
#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/plugins.h>

namespace drivetrain::test {
namespace {

// One rank of a trial.
class DataParallelRank {
 public:
  static constexpr int64_t kRows = 2, kSteps = 3;

  DataParallelRank(const DataParallelTrial& trial, int64_t rank, const std::shared_ptr<Store>& store)
      : trial_(trial),
        store_(store),
        services_{.log = log_,
                  .store = *store_,
                  .rank = rank,
                  .world_size = trial.ranks,
                  .local_rank = rank,
                  .local_size = trial.ranks,
                  .dtypes = {.param = trial.param, .grad = trial.grad, .reduce = trial.reduce},
                  .plugins = &maker_,
                  .recorded = trial.recorded},
        truth_(trial.param, trial.grad != at::kFloat || trial.reduce != at::kFloat,
               kRows * trial.accumulation * trial.ranks, trial.frozen_factor) {
    // Other tests need the cores that waiting ranks would keep busy.
    if (trial.ranks > 1)
      communicator_ = make<Communicator>("local", concat(R"({"spin": 0, "share": )", trial.share ? "true}" : "false}"));
    plugin_ = trial.make ? trial.make(services_) : make<DataParallel>(trial.name, trial.options);
  }

  void run(HeldPieces& held) {
    try {
      make_mesh();
      units_ = toy_units(truth_);
      bytes_.planned = planned_bytes();
      plugin_->attach(units_);
      chunks_ = plugin_->trainables();
      frozen_ = plugin_->frozen();
      hold(held);
      fill();
      for (int64_t step = 1; step <= kSteps; ++step) {
        evaluate(step);
        train(step);
      }
      evaluate(kSteps);
      const std::lock_guard lock(held.mutex);
      held.bytes[services_.rank] = bytes_;
    } catch (const std::exception& e) {
      if (communicator_) communicator_->abort(e.what());
      throw;
    }
  }

 private:
  template <class Kind>
  std::shared_ptr<Kind> make(const std::string& name, const std::string& json) const {
    return installed_plugins().make<Kind>(name, json, services_);
  }

  PlanRecord plan_record(bool known) const {
    ModelFacts facts;
    for (const auto& [name, master] : truth_.now().masters) facts.parameters += static_cast<int64_t>(master.size());
    facts.num_layers = 2;
    RunFacts run;
    run.world_size = trial_.ranks, run.rest_ranks = trial_.ranks;
    run.reduce_every = trial_.reduce_every, run.train_steps = kSteps, run.micro_batch_size = kRows;
    if (known) run.train_batch_size = kRows * trial_.accumulation * trial_.ranks;
    if (known) run.accumulation = trial_.accumulation;
    PlanRecord record(facts, run);
    record.set_plugin("data_parallel/" + trial_.name);
    return record;
  }

  // Of gradients and the optimizer, and the elements that are updated, by the units; 0: it does not plan by them.
  double planned_bytes() const {
    PlanRecord record = plan_record(true);
    if (!plugin_->plan_units(record, {units_, *mesh_, trial_.share})) return 0;
    double bytes = record.updated_elements();
    for (const PlanRecord::Memory& part : record.memories())
      if (part.memory_class == MemoryClass::gradients || part.memory_class == MemoryClass::optimizer)
        bytes += part.bytes;
    return bytes;
  }

  // Twice, as a run does: batch sizes follow from the mesh.
  void make_mesh() {
    std::vector<Axis> axes;
    for (const bool known : {false, true}) {
      PlanRecord context = plan_record(known);
      plugin_->plan(context);
      axes = axes_of(context);
      for (const Axis& axis : axes) EXPECT_TRUE(axis.joins_gradients) << axis.name;
    }
    mesh_ = std::make_unique<Mesh>(axes, services_.rank, trial_.ranks, communicator_);
    services_.mesh = mesh_.get();
    if (trial_.ranks > 1) {  // else one of the two ways is not tried at all
      EXPECT_EQ(mesh_->world()->allocate_once(1, at::kFloat).defined(), trial_.share);
    }
  }

  void hold(HeldPieces& held) {
    const std::lock_guard lock(held.mutex);
    HeldOrder order;
    for (const auto* lists : {&chunks_, &frozen_})
      for (const Trainables& chunk : *lists) {
        EXPECT_FALSE(chunk.empty());
        ++order.chunks;
        for (const Trainable& t : chunk) {
          order.names.insert(t.param->name);
          held.list.push_back(piece_of(t, lists == &chunks_));
        }
      }
    // Nobody's: whole on every rank.
    for (const ParamPtr& param : units_.all()) {
      if (order.names.contains(param->name)) continue;
      EXPECT_FALSE(param->trainable) << param->name << " is nobody's";
      held.list.push_back({param->name, std::to_string(services_.rank), 0, param->layout.global_numel()});
    }
    held.orders.push_back(order);
  }

  // Memory that several tensors are in counts once.
  static uint64_t bytes_of(const std::vector<at::Tensor>& tensors) {
    std::map<const void*, uint64_t> storages;
    for (const at::Tensor& t : tensors)
      if (t.defined() && t.numel() > 0) storages[t.storage().data()] = t.storage().nbytes();
    uint64_t bytes = 0;
    for (const auto& [storage, size] : storages) bytes += size;
    return bytes;
  }

  void count_bytes() {
    std::vector<at::Tensor> gradients, masters;
    for (const ParamPtr& param : units_.all()) gradients.push_back(param->grad);
    for (const Trainables& chunk : chunks_)
      for (const Trainable& t : chunk) {
        gradients.push_back(t.grad), gradients.push_back(t.device_grad);
        if (t.value.storage().data() != t.working.storage().data()) masters.push_back(t.value);
      }
    bytes_.gradients = std::max(bytes_.gradients, bytes_of(gradients));
    bytes_.masters = std::max(bytes_.masters, bytes_of(masters));
  }

  HeldPiece piece_of(const Trainable& t, bool trainable) const {
    EXPECT_EQ(t.param->trainable, trainable) << t.param->name;
    EXPECT_EQ(t.layout.global_shape, t.param->layout.global_shape) << t.param->name;
    HeldPiece piece{t.param->name, "", t.layout.begin, t.layout.end < 0 ? t.layout.global_numel() : t.layout.end};
    EXPECT_TRUE(piece.end == piece.begin || piece.begin % kNormBlock == 0) << piece.param << " from " << piece.begin;
    std::vector<at::Tensor> tensors = {t.value, t.working};
    if (trainable) tensors.push_back(t.grad);
    EXPECT_TRUE(trainable || !t.grad.defined()) << t.param->name << " is frozen and has memory for gradients";
    EXPECT_TRUE(trainable || t.value.const_data_ptr() == t.working.const_data_ptr())
        << t.param->name << " is frozen and has a master beside its value";
    for (const at::Tensor& tensor : tensors) {
      EXPECT_TRUE(tensor.defined() && tensor.is_contiguous()) << piece.param;
      EXPECT_EQ(tensor.numel(), piece.end - piece.begin) << piece.param;
    }
    EXPECT_EQ(t.value.scalar_type(), trainable ? at::kFloat : t.value.scalar_type()) << piece.param;
    EXPECT_EQ(t.working.scalar_type(), trial_.param) << piece.param;
    EXPECT_TRUE(!trainable || t.grad.scalar_type() == trial_.grad) << piece.param << ", whatever crosses ranks";
    for (const Axis& axis : mesh_->axes()) {
      const auto& sharing = t.layout.flat_axes;
      if (std::find(sharing.begin(), sharing.end(), axis.name) == sharing.end())
        piece.others += concat(axis.name, axis.index, " ");
    }
    return piece;
  }

  // As the runtime: values by formula, the working copy cast from them, the rest of the ranks told.
  void fill() {
    for (auto* lists : {&chunks_, &frozen_})
      for (Trainables& chunk : *lists) {
        for (Trainable& t : chunk) {
          fill_initial(t.value, t.param->name, t.layout.begin);
          if (!t.working.is_same(t.value)) t.working.copy_(t.value);
          named_.insert(t.param->name);
        }
        plugin_->after_update(chunk, context_);
      }
    for (const ParamPtr& param : units_.all()) {
      if (named_.contains(param->name)) continue;
      fill_initial(param->tensor.detach().view(-1), param->name, 0);
    }
  }
  static void fill_initial(at::Tensor values, const std::string& name, int64_t begin) {
    const at::Tensor initial = at::empty({values.numel()}, at::TensorOptions(at::kFloat));
    float* data = initial.mutable_data_ptr<float>();
    for (int64_t i = 0; i < initial.numel(); ++i) data[i] = toy_initial(name, begin + i);
    values.copy_(initial);
  }

  // Forwards and backwards of the micro-batches, each over all units.
  std::vector<Visit> visits(bool train) const {
    std::vector<Visit> list;
    const auto units = static_cast<int64_t>(units_.units.size());
    const auto add = [&](int64_t micro, Direction direction) {
      for (int64_t i = 0; i < units; ++i) {
        Visit visit;
        visit.unit = direction == Direction::forward ? i : units - 1 - i;
        visit.micro = micro, visit.direction = direction;
        list.push_back(visit);
      }
    };
    const int64_t group = trial_.forwards_first && train ? 2 : 1;
    for (int64_t first = 0; first < trial_.accumulation; first += group) {
      const int64_t last = std::min(first + group, trial_.accumulation);
      for (int64_t micro = first; micro < last; ++micro) add(micro, Direction::forward);
      for (int64_t micro = first; train && micro < last; ++micro) add(micro, Direction::backward);
    }
    std::map<std::pair<int64_t, Direction>, Visit*> last;
    for (Visit& visit : list) {
      Visit*& previous = last[{visit.unit, visit.direction}];
      visit.first = !previous;
      previous = &visit;
    }
    for (auto& [key, visit] : last) visit->last = true;
    return list;
  }

  void begin(int64_t step, Mode mode) {
    context_.step_ = step, context_.mode_ = mode, context_.at_ = 0;
    context_.visits_ = visits(mode == Mode::train);
  }

  // Micro-batch m of step s is rows of the global batch; ranks read one after the other.
  void visit_all() {
    for (; context_.at_ < context_.visits_.size(); ++context_.at_) {
      const Visit visit = context_.visits_[context_.at_];
      const int64_t micro = ((context_.step_ - 1) * trial_.accumulation + visit.micro) * trial_.ranks + services_.rank;
      context_.batch_.first_sample = micro * kRows;
      context_.batch_.tokens_BS = at::zeros({kRows, 1}, at::TensorOptions(at::kLong));
      Unit& unit = *units_.units[static_cast<size_t>(visit.unit)];
      Saved saved;
      if (visit.direction == Direction::forward) {
        plugin_->before_forward(visit, context_);
        unit.forward({}, context_, saved);
        plugin_->after_forward(visit, context_);
      } else {
        plugin_->before_backward(visit, context_);
        plugin_->before_grads(visit, context_);
        unit.backward({}, context_, saved);
        count_bytes();
        plugin_->after_backward(visit, context_);
        plugin_->values_done(visit, context_);
      }
    }
  }

  void evaluate(int64_t step) {
    begin(step, Mode::evaluate);
    visit_all();
  }

  void train(int64_t step) {
    begin(step, Mode::train);
    plugin_->step_begin(context_);
    visit_all();
    plugin_->flush_grads(context_);
    for (Trainables& chunk : chunks_) {
      for (Trainable& t : chunk) update(t, step);
      plugin_->after_update(chunk, context_);
    }
    for (const Trainables& chunk : chunks_)
      for (const Trainable& t : chunk) t.param->restart_grad();
    plugin_->step_end(context_);
    truth_.next();
  }

  void update(Trainable& t, int64_t step) const {
    const at::Tensor grad = t.grad.to(at::kFloat);
    const float* g = grad.const_data_ptr<float>();
    const double* wanted = truth_.now().gradients.at(t.param->name).data() + t.layout.begin;
    for (int64_t i = 0; i < grad.numel(); ++i)
      if (g[i] != wanted[i]) {
        ADD_FAILURE() << "gradient of " << t.param->name << ", element " << t.layout.begin + i << ", step " << step
                      << " on rank " << services_.rank << ": " << g[i] << ", the sum over all rows is " << wanted[i];
        break;
      }
    float* value = t.value.mutable_data_ptr<float>();
    for (int64_t i = 0; i < grad.numel(); ++i) value[i] -= ToyTruth::kRate * g[i];
    if (!t.working.is_same(t.value)) t.working.copy_(t.value);
  }

  const DataParallelTrial& trial_;
  LinesLog log_;
  const std::shared_ptr<Store> store_;
  Services services_;
  const InstalledMaker maker_{services_};
  ToyTruth truth_;
  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<Mesh> mesh_;
  UnitList units_;
  std::shared_ptr<DataParallel> plugin_;
  std::vector<Trainables> chunks_, frozen_;
  std::set<std::string> named_;
  ToyContext context_;
  HeldBytes bytes_;
};

}  // namespace

std::string text_of(const DataParallelTrial& t) {
  return concat(t.name, " ", t.options, ", ", t.ranks, " ranks, ", t.accumulation, " micro-batches, reduce_every ",
                t.reduce_every ? std::to_string(*t.reduce_every) : "null", ", ", c10::toString(t.param), ", gradients ",
                c10::toString(t.grad), ", summed in ", c10::toString(t.reduce),
                t.share ? ", shared values" : ", own values", t.forwards_first ? ", forwards first" : "");
}

void run_data_parallel_rank(const DataParallelTrial& trial, int64_t rank, const std::shared_ptr<Store>& store,
                            HeldPieces& held) {
  DataParallelRank(trial, rank, store).run(held);
}

}  // namespace drivetrain::test
