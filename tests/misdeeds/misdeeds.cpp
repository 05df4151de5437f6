// Plugins that do one wrong thing, chosen by their options: `in` names the call, `deed` what happens there, `after` the
// file from whose coming on it happens. The strategy also keeps a run where a test wants it: with a file of the folder
// `gates` that has the number of a step as its name, that step does not begin.
#include <drivetrain/attention.h>
#include <drivetrain/checkpoint_policy.h>
#include <drivetrain/data_parallel.h>
#include <drivetrain/dataset.h>
#include <drivetrain/error.h>
#include <drivetrain/lr_schedule.h>
#include <drivetrain/mesh.h>
#include <drivetrain/monitor.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/precision.h>
#include <drivetrain/recompute.h>
#include <drivetrain/schedule.h>
#include <drivetrain/services.h>
#include <drivetrain/strategy.h>

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <limits>
#include <new>
#include <stdexcept>
#include <thread>

#include "support/waiting.h"

namespace {

using namespace drivetrain;

struct Options {
  std::string in, deed, after, gates;
  int64_t rank = -1;  // only this one; -1: all
  double slow_ms = 200;
};

class Deed {
 public:
  Deed(const Options& options, const Services& services)
      : options_(options), here_(options.rank < 0 || options.rank == services.rank) {
    at("create");
  }
  // Whether `deed` is done here, now.
  bool is(const char* deed) const { return here_ && options_.deed == deed && has_come(); }
  // Whether it is done somewhere, at some time.
  bool is_ever(const char* deed) const { return options_.deed == deed; }
  bool waits_for_a_file() const { return !options_.after.empty(); }
  void at(const char* call) const {
    if (!here_ || options_.in != call) return;
    if (is("std")) throw std::runtime_error("the tape drive is on fire");
    if (is("c10")) TORCH_CHECK(false, "the tape drive is on fire");
    if (is("int")) throw 7;
    if (is("bad_alloc")) throw std::bad_alloc();
    if (is("error")) throw fail(ErrorCode::numeric, "the tape drive is on fire");
    if (is("unreachable")) throw fail(ErrorCode::communication, "the tape drive does not answer");
    if (is("crash")) std::raise(SIGSEGV);
    if (is("exit")) std::exit(0);
    if (is("_exit")) _exit(0);
    if (is("close")) closefrom(3);
    if (is("long text")) throw std::runtime_error("the tape drive is on fire" + std::string(5 << 20, '!'));
    if (is("throw on a thread")) std::thread([] { throw std::runtime_error("the tape drive is on fire"); }).join();
    if (is("double free")) free_twice();
    if (is("slow")) test::let_pass(options_.slow_ms / 1000);  // Waits: that is the deed
    while (is("hang")) test::let_pass(0.05);                  // Waits: that is the deed
  }
  void stand_at_gate(int64_t step) const {
    const std::string gate = options_.gates + "/" + std::to_string(step);
    while (!options_.gates.empty() && access(gate.c_str(), F_OK) == 0) test::let_pass(0.005);  // Waits: for the test
  }

 private:
  static void free_twice() {
    void* const block = std::malloc(100);
    void* volatile again = block;  // which the compiler does not look through
    std::free(block), std::free(again);
  }
  bool has_come() const { return options_.after.empty() || access(options_.after.c_str(), F_OK) == 0; }

  const Options options_;
  const bool here_;
};

OptionTable deed_options() {
  return table<Options>()
      .field("in", &Options::in, "the call")
      .field("deed", &Options::deed, "what happens there")
      .field("after", &Options::after, "a file: it happens once that is there; \"\": from the beginning")
      .field("gates", &Options::gates, "a folder: a step does not begin while a file there has its number as name")
      .field("rank", &Options::rank, "where; -1: everywhere")
      .field("slow_ms", &Options::slow_ms, "how long the deed \"slow\" takes");
}

template <class Kind>
class Wrong : public Kind {
 public:
  using Options = ::Options;
  static OptionTable options() { return deed_options(); }
  Wrong(const Options& options, const Services& services) : deed_(options, services), services_(services) {}
  ~Wrong() override { deed_.at("destructor"); }

 protected:
  const Deed deed_;
  const Services& services_;
};

// A unit whose backward leaves out the gradient of its first parameter.
class Forgetful : public Unit {
 public:
  explicit Forgetful(UnitPtr inner) : Unit(inner->name()), inner_(std::move(inner)) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }
  Tensors forward(const Tensors& x, StepContext& ctx, Saved& saved) override { return inner_->forward(x, ctx, saved); }
  Tensors backward(const Tensors& dy, StepContext& ctx, Saved& saved) override {
    Tensors dx = inner_->backward(dy, ctx, saved);
    inner_->params().front()->restart_grad();
    return dx;
  }
  bool returns_summands() const override { return inner_->returns_summands(); }
  bool is_block() const override { return inner_->is_block(); }

 private:
  const UnitPtr inner_;
};

class WrongStrategy : public Wrong<Strategy> {
 public:
  using Wrong::Wrong;
  void plan(PlanContext&) override { deed_.at("plan"); }
  void build(Builder&) override { deed_.at("build"); }
  void attach(UnitList& units) override {
    deed_.at("attach");
    units_ = units;
    if (deed_.is("forget")) units.units[1] = std::make_shared<Forgetful>(units.units[1]);
  }
  void step_begin(StepContext& ctx) override {
    deed_.stand_at_gate(ctx.step());
    deed_.at("step_begin");
    if (deed_.is("reserved figure")) ctx.metric("loss", at::full({}, 1.0));
    if (deed_.is("wide figure")) ctx.metric("mine", at::full({2}, 1.0));
  }
  void before_forward(const Visit& visit, StepContext&) override {
    deed_.at("before_forward");
    if (deed_.is("write ahead") && visit.unit == 0 && visit.micro > 0) write_to(*units_.units[1]);
  }
  void after_backward(const Visit& visit, StepContext&) override {
    deed_.at("after_backward");
    if (deed_.is("write behind") && visit.unit == 0) write_to(*units_.units[1]);
  }
  void flush_grads(StepContext&) override { deed_.at("flush_grads"); }
  void after_update(Trainables&, StepContext& ctx) override {
    if (ctx.step() > 0) deed_.at("after_update");
  }
  void step_end(StepContext&) override {
    deed_.at("step_end");
    if (deed_.is_ever("wide sum"))
      services_.mesh->world()->all_reduce(at::zeros({deed_.is("wide sum") ? 2 : 1}))->wait();
  }

 private:
  // Past autograd and its counters.
  static void write_to(const Unit& unit) {
    *static_cast<float*>(unit.params().front()->tensor.mutable_data_ptr()) += 1;
  }
  UnitList units_;
};

// Plain gradient descent.
class WrongOptimizer : public Wrong<Optimizer> {
 public:
  using Wrong::Wrong;
  std::vector<Hyper> groups() const override { return {{1e-3, 0, 0}}; }
  int group_of(const Param&) const override { return deed_.is("group") ? 5 : 0; }
  double state_bytes_per_element() const override { return 0; }
  void init(const Trainables&) override { deed_.at("init"); }
  void update(const Trainables& chunk, const UpdateArgs& args) override {
    deed_.at("update");
    for (const Trainable& t : chunk) {
      at::Tensor value = t.value;
      if (deed_.is("shape"))
        value.resize_({1});
      else if (deed_.is("memory"))
        value.set_data(at::full(value.sizes(), 1.0f));
      else
        value.sub_(t.grad.mul(args.grad_scale.item<double>() * args.hyper[0][0].item<double>()));
    }
  }
  void state(StateVisitor& visitor) override {
    deed_.at("state");
    at::Tensor none;
    if (deed_.is("state")) visitor.tensor("moment", none, {});
  }
};

class WrongDataset : public Wrong<Dataset> {
 public:
  using Wrong::Wrong;
  DatasetFacts open(const RunFacts&, const ModelFacts&) override {
    deed_.at("open");
    DatasetFacts facts;
    facts.seq_length = 8;
    facts.notes = Value::object();
    return facts;
  }
  void read(const BatchRequest& request, Batch& batch) override {
    const bool now = request.step == 3 || deed_.waits_for_a_file() || deed_.is_ever("slow");
    if (now) deed_.at("read");
    const auto longs = at::TensorOptions(at::kLong);
    batch.tokens_BS = at::full({request.rows, 8}, 1, now && deed_.is("float") ? longs.dtype(at::kFloat) : longs);
    if (!(now && deed_.is("no labels")))
      batch.labels_BS = at::full({request.rows, now && deed_.is("short") ? 7 : 8}, 2, longs);
    if (now && deed_.is("unannounced documents")) batch.cu_seqlens = {0, 8, 16, 24, 32};
    if (now && deed_.is("late position")) batch.position_ids_BS = at::full({request.rows, 8}, 1, longs);
  }
};

class WrongAttention : public Wrong<Attention> {
 public:
  using Wrong::Wrong;
  AttentionAbilities abilities() const override {
    AttentionAbilities can;
    can.dtypes = {at::kFloat};
    can.gqa = can.returns_lse = true;
    return can;
  }
  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override {
    deed_.at("forward");
    auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), 0.0, args.causal, {}, args.scale);
    out = out.transpose(1, 2);
    if (deed_.is("no out")) out = at::Tensor();
    if (deed_.is("double out")) out = out.to(at::kDouble);
    if (deed_.is("no lse")) lse = at::Tensor();
    return {q, k, v, out, lse, {}};
  }
  Tensors backward(const at::Tensor& dout, const AttentionState& s, const AttentionArgs& args) const override {
    deed_.at("backward");
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dout.transpose(1, 2), s.q.transpose(1, 2), s.k.transpose(1, 2), s.v.transpose(1, 2), s.out.transpose(1, 2),
        s.lse, 0.0, args.causal, {}, args.scale);
    if (deed_.is("two gradients")) return {dq.transpose(1, 2), dk.transpose(1, 2)};
    if (deed_.is("no dk")) return {dq.transpose(1, 2), at::Tensor(), dv.transpose(1, 2)};
    if (deed_.is("turned dq")) return {dq, dk.transpose(1, 2), dv.transpose(1, 2)};
    return {dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)};
  }
};

class WrongMonitor : public Wrong<Monitor> {
 public:
  using Wrong::Wrong;
  void on_event(const Event& event) override {
    steps_ += event.type == "step";
    if (event.type == "step" && event.step == 2) deed_.at("on_event");
  }
  void state(StateVisitor& visitor) override {
    deed_.at("state");
    visitor.integer("steps", steps_);
  }

 private:
  int64_t steps_ = 0;
};

class WrongLrSchedule : public Wrong<LrSchedule> {
 public:
  using Wrong::Wrong;
  Hyper at(const Progress&, const Hyper& base) const override {
    deed_.at("at");
    Hyper hyper = base;
    if (deed_.is("nan")) hyper.lr = std::numeric_limits<double>::quiet_NaN();
    if (deed_.is("negative")) hyper.lr = -hyper.lr;
    if (deed_.is("own rate")) hyper.lr = 0.5;
    if (deed_.is("own decay")) hyper.weight_decay = 0.5;
    return hyper;
  }
};

// Keeps every checkpoint; saves where its deed says so.
class WrongCheckpointPolicy : public Wrong<CheckpointPolicy> {
 public:
  using Wrong::Wrong;
  bool due(const SaveMoment& moment) override {
    deed_.at("due");
    return (deed_.is("save") && moment.step == 2) || (deed_.is("save at the end") && moment.last);
  }
  std::vector<bool> keep(const std::vector<StoredTag>& tags) override {
    deed_.at("keep");
    return std::vector<bool>(tags.size(), true);
  }
};

// Gives every parameter its place, and none to the optimizer.
class WrongDataParallel : public Wrong<DataParallel> {
 public:
  using Wrong::Wrong;
  void attach(UnitList& units) override {
    for (const UnitPtr& unit : units.units)
      for (const ParamPtr& param : unit->params())
        param->tensor = at::zeros(param->layout.local_shape(*services_.mesh));
  }
  std::vector<Trainables> trainables() override { return {}; }
};

class WrongHeld : public Held {
 public:
  WrongHeld(std::unique_ptr<Held> inner, const Deed& deed) : inner_(std::move(inner)), deed_(deed) {}
  ~WrongHeld() override { deed_.at("destructor of held"); }
  Tensors restore() override { return inner_->restore(); }

 private:
  const std::unique_ptr<Held> inner_;
  const Deed& deed_;
};

class WrongRecompute : public Wrong<Recompute> {
 public:
  using Wrong::Wrong;
  void step_end(StepContext&) override {
    if (deed_.is("barrier")) services_.mesh->world()->barrier();
  }
  Keep keep(const Region& region) const override { return region.name.empty() ? Keep::input : Keep::all; }
  std::unique_ptr<Held> hold(Tensors inputs) const override {
    if (deed_.is("no hold")) return nullptr;
    if (deed_.is("empty hold")) inputs.clear();
    return std::make_unique<WrongHeld>(Recompute::hold(std::move(inputs)), deed_);
  }
};

class WrongPrecision : public Wrong<Precision> {
 public:
  using Wrong::Wrong;
  Dtypes dtypes() const override {
    deed_.at("dtypes");
    return {at::kFloat, at::kFloat, at::kFloat, at::kFloat};
  }
  std::optional<LossScaling> loss_scaling() const override {
    deed_.at("loss_scaling");
    return std::nullopt;
  }
  bool skips_not_finite() const override {
    deed_.at("skips_not_finite");
    return false;
  }
};

// Micro-batch after micro-batch, on one stage or on two.
class WrongSchedule : public Wrong<Schedule> {
 public:
  using Wrong::Wrong;
  void plan(PlanContext& ctx) override {
    if (two()) ctx.claim_axis(kAxis, 2, false, PlanContext::kStagePlace);
  }
  int64_t stages() const override {
    deed_.at("stages");
    return two() ? 2 : 1;
  }
  int64_t chunks() const override {
    deed_.at("chunks");
    return 1;
  }
  int64_t piece(int64_t stage, int64_t) const override {
    deed_.at("piece");
    return deed_.is("same piece") ? 0 : stage;
  }
  std::vector<int64_t> partition(const std::vector<double>&) const override {
    deed_.at("partition");
    return two() ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0};
  }
  Program program(int64_t stage, int64_t micro_batches, Pass pass) const override {
    deed_.at("program");
    const bool train = pass == Pass::train, first = stage == 0;
    Program list;
    for (int16_t m = 0; m < micro_batches; ++m) {
      list.push_back({Op::load, m});
      if (!first) list.push_back({Op::recv_forward, m});
      list.push_back({Op::forward, m});
      // The other stage gives a gradient only for what it was sent.
      if (train && two() && first) list.push_back({Op::recv_backward, m});
      if (two() && first) list.push_back({Op::send_forward, m});
      if (train && !deed_.is("no backward")) list.push_back({Op::backward, m});
      if (train && !first) list.push_back({Op::send_backward, m});
    }
    return list;
  }
  int64_t slots(int64_t, int64_t) const override {
    deed_.at("slots");
    return deed_.is("many slots") ? int64_t{1} << 50 : 1;
  }

 private:
  bool two() const { return deed_.is("waiting") || deed_.is("same piece"); }
};

}  // namespace

DRIVETRAIN_PLUGINS(
    DRIVETRAIN_ENTRY(Strategy, "misdeed", WrongStrategy), DRIVETRAIN_ENTRY(Optimizer, "misdeed", WrongOptimizer),
    DRIVETRAIN_ENTRY(Dataset, "misdeed", WrongDataset), DRIVETRAIN_ENTRY(Attention, "misdeed", WrongAttention),
    DRIVETRAIN_ENTRY(Monitor, "misdeed", WrongMonitor), DRIVETRAIN_ENTRY(LrSchedule, "misdeed", WrongLrSchedule),
    DRIVETRAIN_ENTRY(Recompute, "misdeed", WrongRecompute), DRIVETRAIN_ENTRY(Precision, "misdeed", WrongPrecision),
    DRIVETRAIN_ENTRY(Schedule, "misdeed", WrongSchedule),
    DRIVETRAIN_ENTRY(CheckpointPolicy, "misdeed", WrongCheckpointPolicy),
    DRIVETRAIN_ENTRY(DataParallel, "misdeed", WrongDataParallel))
