// Written against the contract of version 0.1, by its public headers alone. Do not change what follows: that it still
// compiles and runs is what this file is for.
#include <drivetrain/attention.h>
#include <drivetrain/checkpoint_policy.h>
#include <drivetrain/dataset.h>
#include <drivetrain/lr_schedule.h>
#include <drivetrain/monitor.h>
#include <drivetrain/optimizer.h>
#include <drivetrain/services.h>
#include <drivetrain/strategy.h>
#include <drivetrain/tokenizer.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>

namespace {

using namespace drivetrain;

class Counter : public Strategy {
 public:
  Counter(const NoOptions&, const Services&) {}
  void step_begin(StepContext&) override { visits_ = 0; }
  void before_forward(const Visit&, StepContext&) override { ++visits_; }
  void step_end(StepContext& ctx) override { ctx.metric("visits", at::full({}, static_cast<double>(visits_))); }
  void state(StateVisitor& visitor) override { visitor.integer("visits", visits_); }

 private:
  int64_t visits_ = 0;
};

class Descent : public Optimizer {
 public:
  struct Options {
    double lr = 1e-3;
  };
  static OptionTable options() { return table<Options>().field("lr", &Options::lr, "learning rate").at_least(0); }
  Descent(const Options& options, const Services&) : options_(options) {}
  std::vector<Hyper> groups() const override { return {{options_.lr, 0, 0}}; }
  int group_of(const Param&) const override { return 0; }
  double state_bytes_per_element(const Param&) const override { return 0; }
  void init(const Trainables&) override {}
  void update(const Trainables& chunk, const UpdateArgs& args) override {
    const double rate = args.hyper[0][0].item<double>() * args.grad_scale.item<double>();
    for (const Trainable& t : chunk) {
      at::Tensor(t.value).sub_(t.grad.mul(rate));
      if (!t.working.is_same(t.value)) at::Tensor(t.working).copy_(t.value);
    }
  }
  void state(StateVisitor&) override {}

 private:
  const Options options_;
};

class Half : public LrSchedule {
 public:
  Half(const NoOptions&, const Services&) {}
  Hyper at(const Progress&, const Hyper& base) const override {
    return {base.lr / 2, base.weight_decay, base.momentum};
  }
};

class CountingUp : public Dataset {
 public:
  struct Options {
    int64_t seq_length = 8;
  };
  static OptionTable options() {
    return table<Options>().field("seq_length", &Options::seq_length, "positions per row").at_least(1);
  }
  CountingUp(const Options& options, const Services&) : options_(options) {}
  DatasetFacts open(const RunFacts&, const ModelFacts& model) override {
    vocabulary_ = model.vocab_size;
    DatasetFacts facts;
    facts.seq_length = options_.seq_length;
    facts.notes = Value::object();
    return facts;
  }
  void read(const BatchRequest& request, Batch& batch) override {
    const int64_t S = options_.seq_length, first = request.step + request.first_row;
    const at::Tensor all = at::arange(first, first + request.rows * S + 1).remainder(vocabulary_);
    batch.tokens_BS = all.narrow(0, 0, request.rows * S).reshape({request.rows, S}).contiguous();
    batch.labels_BS = all.narrow(0, 1, request.rows * S).reshape({request.rows, S}).contiguous();
  }

 private:
  const Options options_;
  int64_t vocabulary_ = 1;
};

// Causal, without anything else.
class Formula : public Attention {
 public:
  Formula(const NoOptions&, const Services&) {}
  AttentionAbilities abilities() const override {
    AttentionAbilities can;
    can.dtypes = {at::kFloat};
    can.returns_lse = can.partial_heads = true;
    return can;
  }
  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override {
    check("attention/minor", q, k, v, args);
    const at::Tensor scores = masked(q, k, args);
    return {q, k, v, at::einsum("bhst,bthd->bshd", {scores.softmax(-1), v}), at::logsumexp(scores, {-1}), {}};
  }
  Tensors backward(const at::Tensor& dout, const AttentionState& s, const AttentionArgs& args) const override {
    const at::Tensor p = (masked(s.q, s.k, args) - s.lse.unsqueeze(-1)).exp();
    const at::Tensor dp = at::einsum("bshd,bthd->bhst", {dout, s.v});
    const at::Tensor rows = (dout * s.out).sum(-1).transpose(1, 2).unsqueeze(-1);
    const at::Tensor ds = p * (dp - rows) * args.scale;
    return {at::einsum("bhst,bthd->bshd", {ds, s.k}), at::einsum("bhst,bshd->bthd", {ds, s.q}),
            at::einsum("bhst,bshd->bthd", {p, dout})};
  }

 private:
  static at::Tensor masked(const at::Tensor& q, const at::Tensor& k, const AttentionArgs& args) {
    const at::Tensor scores = at::einsum("bshd,bthd->bhst", {q, k}) * args.scale;
    const at::Tensor later = at::full({q.size(1), k.size(1)}, 1.0).triu(1).to(at::kBool);
    return args.causal ? scores.masked_fill(later, -1e30) : scores;
  }
};

class Counting : public Monitor {
 public:
  Counting(const NoOptions&, const Services& services) : services_(services) {}
  void on_event(const Event& event) override {
    if (event.type == "step") ++steps_;
    if (event.type == "run_end") services_.log.info(concat("monitor/minor saw ", steps_, " steps"));
  }
  void state(StateVisitor& visitor) override { visitor.integer("steps", steps_); }

 private:
  const Services& services_;
  int64_t steps_ = 0;
};

class EverySecond : public CheckpointPolicy {
 public:
  EverySecond(const NoOptions&, const Services&) {}
  bool due(const SaveMoment& moment) override { return moment.step % 2 == 0; }
  std::vector<bool> keep(const std::vector<StoredTag>& tags) override { return std::vector<bool>(tags.size(), true); }
};

class Bytes : public Tokenizer {
 public:
  Bytes(const NoOptions&, const Services&) {}
  void open(const std::string&) override {}
  TokenizerFacts facts() const override {
    TokenizerFacts facts;
    facts.vocab_size = 256;
    facts.lossless = Lossless::bytes;
    return facts;
  }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  void decode(std::span<const int32_t> ids, std::string& text) const override {
    for (const int32_t id : ids) text += static_cast<char>(id);
  }
  std::optional<int32_t> id_of(std::string_view) const override { return std::nullopt; }
};

}  // namespace

DRIVETRAIN_PLUGINS(DRIVETRAIN_ENTRY(Strategy, "minor", Counter), DRIVETRAIN_ENTRY(Optimizer, "minor", Descent),
                   DRIVETRAIN_ENTRY(LrSchedule, "minor", Half), DRIVETRAIN_ENTRY(Dataset, "minor", CountingUp),
                   DRIVETRAIN_ENTRY(Attention, "minor", Formula), DRIVETRAIN_ENTRY(Monitor, "minor", Counting),
                   DRIVETRAIN_ENTRY(CheckpointPolicy, "minor", EverySecond),
                   DRIVETRAIN_ENTRY(Tokenizer, "minor", Bytes))
