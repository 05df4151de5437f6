// Times our experts for tools/peers/hf_experts.py: experts_layer DTYPE TOKENS HIDDEN INNER EXPERTS CHOSEN REPEATS
// [dense] prints one JSON object. The MLPs of a mixture's experts with random weights: token t chooses experts t CHOSEN
// to t CHOSEN + CHOSEN - 1, modulo their number, so that all have as many rows. Processor seconds of the calling
// thread, the least of the repeats, of forward and of backward, with all weight gradients; bytes of blocks from 64 KB
// up that are kept for backward, and that are held at most, with the result. With `dense` the three grouped products of
// fc, and the same rows with a single matrix of fc.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <ctime>
#include <functional>
#include <iostream>
#include <string>

#include <drivetrain/toolkit/layers/grouped_product.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/layers/mixture.h>
#include <drivetrain/toolkit/text.h>

#include "memory/cpu_allocator.h"

namespace drivetrain {
namespace {

struct Shape {
  at::ScalarType type = at::kFloat;
  int64_t tokens = 0, hidden = 0, inner = 0, experts = 0, chosen = 0, repeats = 0;
  at::Tensor numbers(at::IntArrayRef sizes, double scale) const { return (at::randn(sizes) * scale).to(type); }
};

// What a layer is shown of a run.
class Step : public StepContext {
 public:
  int64_t step() const override { return 1; }
  Mode mode() const override { return Mode::train; }
  const Batch& batch() const override { return batch_; }
  const Visit& visit() const override { return visit_; }
  std::span<const Visit> ahead() const override { return {}; }
  RandomKey random(std::string_view) const override { return {}; }
  at::Tensor add_loss(const std::string&, const at::Tensor&, double) override { return {}; }
  void metric(const std::string&, const at::Tensor&) override {}

 private:
  Batch batch_;
  Visit visit_;
};

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double seconds_of(const std::function<void()>& work) {
  const double before = processor_seconds();
  work();
  return processor_seconds() - before;
}

double least_seconds(int64_t repeats, const std::function<void()>& work) {
  double least = seconds_of(work);
  for (int64_t i = 0; i < repeats; ++i) least = std::min(least, seconds_of(work));
  return least;
}

void give_weight(const Shape& shape, Param& weight) {
  weight.tensor = shape.numbers(weight.layout.global_shape, 0.02).set_requires_grad(true);
  weight.grad = at::zeros(weight.layout.global_shape);
}

std::string layer(const Shape& s) {
  const auto experts = make_plain_experts({"experts", s.experts, s.hidden, s.inner, "swiglu"});
  for (const ParamPtr& weight : experts->params()) give_weight(s, *weight);
  const at::Tensor choices = at::arange(s.tokens * s.chosen).remainder(s.experts).view({s.tokens, s.chosen}),
                   weights =
                       at::full({s.tokens, s.chosen}, 1.0 / static_cast<double>(s.chosen)).set_requires_grad(true),
                   x = s.numbers({s.tokens, s.hidden}, 1).set_requires_grad(true),
                   dy = s.numbers({s.tokens, s.hidden}, 1);
  Step step;
  double forward = 1e9, backward = 1e9;
  int64_t before = 0, kept = 0, peak = 0;
  for (int64_t i = 0; i <= s.repeats; ++i) {
    for (const ParamPtr& weight : experts->params()) weight->restart_grad();
    reset_cpu_peak();
    before = cpu_memory().in_use;
    at::Tensor y;
    forward = std::min(forward, seconds_of([&] {
                         y = sum_of_experts(*experts, s.experts, x, {choices, weights}, step, [] {});
                       }));
    kept = cpu_memory().in_use - before;
    backward = std::min(backward, seconds_of([&] { y.backward(dy); }));
    peak = cpu_memory().peak_in_use - before;
  }
  return concat("{\"forward\":", forward, ",\"backward\":", backward, ",\"kept\":", kept, ",\"peak\":", peak, "}");
}

std::string products(const Shape& s) {
  const int64_t rows = s.tokens * s.chosen, out = 2 * s.inner;
  const RowGroups groups(at::full({s.experts}, rows / s.experts, at::kLong));
  Param many("experts", Layout::whole({s.experts * out, s.hidden}), InitRule::zeros()),
      one("matrix", Layout::whole({out, s.hidden}), InitRule::zeros());
  give_weight(s, many), give_weight(s, one);
  const at::Tensor x = s.numbers({rows, s.hidden}, 1), dy = s.numbers({rows, out}, 1), w = many.tensor.detach(),
                   v = one.tensor.detach();
  const auto time = [&](const std::function<void()>& work) { return least_seconds(s.repeats, work); };
  const double grouped[] = {time([&] { grouped_product(x, w, groups); }),
                            time([&] { grouped_product_backward(dy, w, groups); }),
                            time([&] { many.restart_grad(), accumulate_grouped_weight_grad(many, dy, x, groups); })};
  const double dense[] = {time([&] { product(x, v); }), time([&] { product_backward(dy, v); }),
                          time([&] { one.restart_grad(), accumulate_weight_grad(one, dy, x); })};
  const auto list = [](const double(&t)[3]) { return concat("[", t[0], ",", t[1], ",", t[2], "]"); };
  return concat("{\"grouped\":", list(grouped), ",\"dense\":", list(dense), "}");
}

}  // namespace
}  // namespace drivetrain

int main(int argc, char** argv) {
  using namespace drivetrain;
  if (argc != 8 && argc != 9) {
    std::cerr << "usage: experts_layer f32|bf16 TOKENS HIDDEN INNER EXPERTS CHOSEN REPEATS [dense]\n";
    return 2;
  }
  install_cpu_allocator();
  at::set_num_threads(1);
  const auto number = [&](int i) { return std::stoll(argv[i]); };
  const Shape shape{argv[1] == std::string("bf16") ? at::kBFloat16 : at::kFloat,
                    number(2),
                    number(3),
                    number(4),
                    number(5),
                    number(6),
                    number(7)};
  std::cout << (argc == 9 ? products(shape) : layer(shape)) << "\n";
  return 0;
}
