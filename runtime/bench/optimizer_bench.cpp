// `drivetrain bench optimizer`: the end of a step - norm, clipping, update, gradients ready for the next one - by every
// installed optimizer, in turns with LibTorch's four passes over the same values and gradients: linalg_vector_norm,
// mul_, its fused Adam, zero_.
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include <drivetrain/optimizer.h>
#include <drivetrain/toolkit/text.h>

#include "bench/machine.h"
#include "bench/plugin_host.h"
#include "bench/table.h"
#include "bench/timing.h"
#include "memory/cpu_allocator.h"
#include "step/norm.h"

namespace drivetrain {
namespace {

constexpr int64_t kPieceColumns = 3072, kPieceRows = 2304;  // a GPT-2 block's parameters at once

// One large flat buffer per role, cut as a model is.
struct Pieces {
  at::Tensor value, grad;
  Trainables chunk;

  Pieces(int64_t elements, const at::Device& device) {
    const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
    value = at::rand({elements}, options), grad = at::rand({elements}, options);
    constexpr int64_t whole = kPieceRows * kPieceColumns;
    for (int64_t begin = 0; begin < elements; begin += whole) {
      const int64_t n = std::min(whole, elements - begin);
      const auto shape = n == whole ? std::vector<int64_t>{kPieceRows, kPieceColumns} : std::vector<int64_t>{n};
      Trainable t;
      t.param = std::make_shared<Param>(concat("piece.", begin / whole), Layout::whole(shape), InitRule::zeros());
      t.layout = t.param->layout;
      t.value = t.working = value.narrow(0, begin, n);
      t.grad = grad.narrow(0, begin, n);
      chunk.push_back(t);
    }
  }
  std::vector<ParamPtr> params() const {
    std::vector<ParamPtr> list;
    for (const Trainable& t : chunk) list.push_back(t.param);
    return list;
  }
};

class Ours {
 public:
  Ours(std::shared_ptr<Optimizer> optimizer, const Pieces& pieces, const at::Device& device)
      : optimizer_(std::move(optimizer)),
        chunks_{pieces.chunk},
        mesh_({}, 0, 1, nullptr),
        norm_(chunks_, pieces.params(), mesh_, device) {
    for (Trainable& t : chunks_[0]) t.group = optimizer_->group_of(*t.param);
    optimizer_->init(chunks_[0]);
    const auto on = [&](at::ScalarType type) { return at::TensorOptions(type).device(device); };
    const std::vector<Hyper> groups = optimizer_->groups();
    at::Tensor hyper = at::zeros({static_cast<int64_t>(groups.size()), 3}, at::TensorOptions(at::kDouble));
    double* row = hyper.mutable_data_ptr<double>();
    for (const Hyper& h : groups) *row++ = h.lr, *row++ = h.weight_decay, *row++ = h.momentum;
    args_.hyper = hyper.to(device);
    args_.grad_scale = at::full({}, 1.0, on(at::kDouble));
    squares_ = at::zeros({}, on(at::kDouble));
    args_.skip = at::zeros({}, on(at::kBool)), args_.step = at::zeros({}, on(at::kLong));
  }

  void step() {
    norm_.sum_of_squares(chunks_, squares_);
    const double norm = std::sqrt(squares_.item<double>());
    args_.grad_scale.fill_(norm > 1 ? 1 / norm : 1.0);
    optimizer_->update(chunks_[0], args_);
    for (const Trainable& t : chunks_[0]) t.param->restart_grad();  // the next gradient overwrites: nothing is zeroed
    args_.step.add_(1);
  }

 private:
  std::shared_ptr<Optimizer> optimizer_;
  std::vector<Trainables> chunks_;
  Mesh mesh_;
  GradNorm norm_;
  at::Tensor squares_;
  UpdateArgs args_;
};

class FourPasses {
 public:
  explicit FourPasses(const Pieces& pieces) {
    for (const Trainable& t : pieces.chunk) {
      values_.push_back(t.value), grads_.push_back(t.grad);
      m_.push_back(at::zeros_like(t.value)), v_.push_back(at::zeros_like(t.value));
      steps_.push_back(at::ones({}, t.value.options()));
    }
    grad_ = pieces.grad;
  }
  void step() {
    const double norm = at::linalg_vector_norm(grad_, 2).item<double>();
    grad_.mul_(1 / (norm + 1e-6) < 1 ? 1 / (norm + 1e-6) : 1.0);
    at::_fused_adamw_(values_, grads_, m_, v_, {}, steps_, 1e-3, 0.9, 0.999, 0.0, 1e-8, false, false);
    grad_.zero_();
  }

 private:
  Tensors values_, grads_, m_, v_, steps_;
  at::Tensor grad_;
};

}  // namespace

BenchReport bench_optimizer(const BenchArguments& arguments) {
  const int64_t elements = arguments.whole("--elements"), rounds = arguments.whole("--rounds");
  const BenchMachine machine = describe_machine();
  const at::Device device = open_bench_device(arguments);
  install_cpu_allocator();
  BenchReport report = report_on("optimizer", machine);
  const PluginHost host(arguments, device);
  const Pieces pieces(elements, device);
  FourPasses theirs(pieces);
  TextTable table({"optimizer", "norm, clip, update, zeroing", "LibTorch's four passes", "ratio", "least to most"});
  Value list = Value::array();
  std::string refusals;
  for (const std::string& name : host.registry.names(Optimizer::kKind)) {
    std::string refusal;
    const auto optimizer = host.make<Optimizer>(name, refusal);
    if (!optimizer) {
      refusals += concat("optimizer/", name, " is left out: ", refusal, "\n");
      continue;
    }
    Ours ours(optimizer, pieces, device);
    const auto seconds = take_turns(device, {[&] { ours.step(); }, [&] { theirs.step(); }}, rounds);
    const Spread mine = spread_of(seconds[0]), other = spread_of(seconds[1]),
                 ratio = spread_of(ratios(seconds[0], seconds[1]));
    table.row({name, seconds_text(mine.median), seconds_text(other.median), formatted("%.2f", ratio.median),
               concat(formatted("%.2f", ratio.min), " to ", formatted("%.2f", ratio.max))});
    Value one = Value::object();
    one.set("optimizer", name);
    one.set("seconds", mine.to_value());
    one.set("libtorch_seconds", other.to_value());
    one.set("ratio", ratio.to_value());
    list.items().push_back(std::move(one));
  }
  report.json.set("device", device.str());
  report.json.set("elements", elements);
  report.json.set("optimizers", std::move(list));
  report.text += concat(elements, " elements in ", pieces.chunk.size(), " tensors; in turns, ", rounds, " rounds\n",
                        table.text(), refusals);
  return report;
}

}  // namespace drivetrain
