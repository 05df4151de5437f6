// `drivetrain bench optimizer`: the end of a step - norm, clipping, update, gradients ready for the next one - by every
// installed optimizer, in turns with LibTorch's four passes over the same values and gradients: linalg_vector_norm,
// mul_, its fused Adam, zero_.
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include <drivetrain/toolkit/text.h>

#include "bench/machine.h"
#include "bench/optimizer_step.h"
#include "bench/plugin_host.h"
#include "bench/table.h"
#include "bench/timing.h"
#include "memory/cpu_allocator.h"

namespace drivetrain {
namespace {

constexpr int64_t kPieceColumns = 3072, kPieceRows = 2304;  // a GPT-2 block's parameters at once

class FourPasses {
 public:
  explicit FourPasses(const OptimizerPieces& pieces) {
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
  const OptimizerPieces pieces(elements, {kPieceRows, kPieceColumns}, device);
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
    OptimizerStep ours(optimizer, pieces, device);
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
