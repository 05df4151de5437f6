// tensor_parallel/megatron: norms of queries and keys and the output layer's scale and softcap, on two ranks against
// one process with the plain layers. Whole models are the kind's suite's.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <map>

#include <drivetrain/communicator.h>
#include <drivetrain/mesh.h>
#include <drivetrain/random.h>
#include <drivetrain/strategy.h>
#include <drivetrain/tensor_parallel.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/kit/rank_threads.h>

#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

constexpr int64_t kB = 2, kS = 3, kHeads = 4, kHead = 6, kHidden = 10, kVocabulary = 13;

class OneBatch : public StepContext {
 public:
  int64_t step() const override { return 1; }
  Mode mode() const override { return Mode::train; }
  const Batch& batch() const override { return batch_; }
  const Visit& visit() const override { return visit_; }
  std::span<const Visit> ahead() const override { return {}; }
  RandomKey random(std::string_view) const override { return {}; }
  at::Tensor add_loss(const std::string&, const at::Tensor&, double) override { return {}; }
  void metric(const std::string&, const at::Tensor&) override {}
  Batch batch_;
  Visit visit_;
};

at::Tensor numbers(std::vector<int64_t> shape, const std::string& name, double std = 1) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  at::Tensor flat = at::empty({count}, at::TensorOptions(at::kFloat));
  fill_normal(flat, 5, name, 0, std);
  return flat.view(shape).to(at::kDouble);
}

at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); }

using Found = std::map<std::string, at::Tensor>;

// What one rank of `ranks` computes; its part of heads and rows, whole where it has the whole.
class Rank {
 public:
  Rank(int64_t ranks, int64_t index, const std::shared_ptr<Store>& store)
      : ranks_(ranks),
        index_(index),
        store_(store),
        services_{.log = host_.log,
                  .store = *store_,
                  .rank = index,
                  .world_size = ranks,
                  .local_rank = index,
                  .local_size = ranks} {
    if (ranks > 1) communicator_ = installed_plugins().make<Communicator>("local", R"({"timeout_s": 20})", services_);
    mesh_ = std::make_unique<Mesh>(ranks > 1 ? std::vector<Axis>{{"tp", ranks}} : std::vector<Axis>{}, index, ranks,
                                   communicator_);
    services_.mesh = mesh_.get();
    builder_ = std::make_unique<Builder>(nullptr, nullptr, *mesh_, facts_);
    builder_->layers = make_plain_layers(nullptr);
    if (ranks == 1) return;
    host_.services.mesh = mesh_.get();
    plugin_ = make_plugin<TensorParallel>(host_, "megatron", R"({"size": 2, "make_vocab_size_divisible_by": 1})");
    plugin_->build(*builder_);
    UnitList none;
    plugin_->attach(none);
  }

  Found norm(NormOver over) {
    const bool each = over == NormOver::head;
    NormSpec spec{"q_norm", each ? kHead : kHeads * kHead, true, 1e-3};
    spec.bias = false, spec.over = over, spec.heads = each ? 1 : kHeads, spec.offset = 1;
    const auto layer = builder_->layers->norm(spec);
    const ParamPtr weight = layer->params().at(0);
    Found found;
    found["partial"] = at::zeros({static_cast<int64_t>(weight->layout.partial_over.size())});
    give(weight, each ? numbers({kHead}, "w") : of_heads(numbers({kHeads * kHead}, "w"), 0));
    const auto shaped = [&](const char* name) {
      const at::Tensor own = of_heads(numbers({kB, kS, kHeads * kHead}, name), 2);
      return each ? own.reshape({kB, kS, kHeads / ranks_, kHead}) : own;
    };
    const at::Tensor x = leaf(shaped("x"));
    OneBatch ctx;
    const at::Tensor y = layer->forward(x, ctx);
    y.backward(shaped("dy"));
    found["y"] = y.detach().flatten(2, -1), found["dx"] = x.grad().flatten(2, -1), found["dw"] = weight->grad;
    return found;
  }

  Found lm_loss(at::ScalarType dtype) {
    LmLossSpec spec;
    spec.name = "head", spec.vocab = kVocabulary, spec.dim = kHidden, spec.scale = 0.5, spec.softcap = 2;
    const auto layer = builder_->layers->lm_loss(spec);
    at::Tensor w = numbers({kVocabulary, kHidden}, "head");
    if (ranks_ > 1) {
      const int64_t rows = (kVocabulary + ranks_ - 1) / ranks_, own = std::min(rows, kVocabulary - index_ * rows);
      at::Tensor part = at::zeros({rows, kHidden}, w.options());
      part.narrow(0, 0, own).copy_(w.narrow(0, index_ * rows, own));
      w = part;
    }
    give(layer->params().at(0), w.to(dtype));
    OneBatch ctx;
    Found found;
    const at::Tensor x = leaf(numbers({kB, kS, kHidden}, "x").to(dtype));
    found["logits"] = layer->forward(x.detach(), ctx).detach();
    ctx.batch_.labels_BS = at::empty({kB, kS}, at::TensorOptions(at::kLong));
    for (int64_t i = 0; i < kB * kS; ++i)
      ctx.batch_.labels_BS.mutable_data_ptr<int64_t>()[i] = i == 2 ? -100 : i * 5 % kVocabulary;
    const at::Tensor loss = layer->forward(x, ctx);
    loss.backward();
    found["loss"] = loss.detach(), found["dx"] = x.grad(), found["dw"] = layer->params()[0]->grad;
    return found;
  }

 private:
  static void give(const ParamPtr& param, const at::Tensor& value) {
    param->tensor = leaf(value), param->grad = at::zeros(value.sizes(), value.options());
  }
  at::Tensor of_heads(const at::Tensor& whole, int64_t dim) const {
    const int64_t own = whole.size(dim) / ranks_;
    return whole.narrow(dim, index_ * own, own).contiguous();
  }

  const int64_t ranks_, index_;
  Host host_;
  std::shared_ptr<Store> store_;
  Services services_;
  const ModelFacts facts_;
  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<Builder> builder_;
  std::unique_ptr<TensorParallel> plugin_;
};

std::vector<Found> on_two(const std::function<Found(Rank&)>& compute) {
  const auto store = make_memory_store();
  std::vector<Found> found(2);
  expect_no_errors(on_threads(2, [&](int64_t index) {
    Rank rank(2, index, store);
    found[static_cast<size_t>(index)] = compute(rank);
  }));
  return found;
}
Found on_one(const std::function<Found(Rank&)>& compute) {
  Rank rank(1, 0, make_memory_store());
  return compute(rank);
}

void expect_near(const at::Tensor& found, const at::Tensor& wanted, double close, const char* what) {
  ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
  EXPECT_LE((found.to(at::kDouble) - wanted).abs().max().item<double>(), close * wanted.abs().max().item<double>())
      << what;
}

TEST(MegatronLayers, norms_of_heads_that_are_cut_are_those_of_one_process) {
  for (const NormOver over : {NormOver::head, NormOver::heads}) {
    const auto compute = [&](Rank& rank) { return rank.norm(over); };
    const Found wanted = on_one(compute);
    const std::vector<Found> found = on_two(compute);
    for (const char* what : {"y", "dx"}) {
      ASSERT_TRUE(found[0].contains(what) && found[1].contains(what));
      expect_near(at::cat({found[0].at(what), found[1].at(what)}, 2), wanted.at(what), 1e-13, what);
    }
    const bool each = over == NormOver::head;  // a sum over ranks; else every rank's own
    const at::Tensor a = found[0].at("dw"), b = found[1].at("dw");
    expect_near(each ? a + b : at::cat({a, b}), wanted.at("dw"), 1e-13, "dw");
    EXPECT_EQ(found[0].at("partial").numel(), each ? 1 : 0);
  }
}

TEST(MegatronLayers, scaled_and_capped_logits_over_a_cut_vocabulary_are_those_of_one_process) {
  const Found wanted = on_one([](Rank& rank) { return rank.lm_loss(at::kDouble); });
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const std::vector<Found> found = on_two([&](Rank& rank) { return rank.lm_loss(dtype); });
    const double close = dtype == at::kDouble ? 1e-13 : 1e-5;
    for (const Found& own : found)
      for (const char* what : {"logits", "loss", "dx"}) expect_near(own.at(what), wanted.at(what), close, what);
    const at::Tensor rows = at::cat({found[0].at("dw"), found[1].at("dw")}).narrow(0, 0, kVocabulary);
    expect_near(rows, wanted.at("dw"), close, "dw");
  }
}

TEST(MegatronLayers, refuses_a_norm_of_heads_that_subtracts_a_mean) {
  const Host host;
  const Mesh mesh({{"tp", 2}}, 0, 2, nullptr);
  const ModelFacts facts;
  Builder builder{nullptr, nullptr, mesh, facts};
  builder.layers = make_plain_layers(nullptr);
  const auto plugin = make_plugin<TensorParallel>(host, "megatron", R"({"size": 2})");
  plugin->build(builder);
  NormSpec spec{"q_norm", 8};
  spec.over = NormOver::heads, spec.heads = 2;
  EXPECT_NE(error_of([&] { (void)builder.layers->norm(spec); }).find("subtracts a mean"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
