// One rank of the model of expert_model.h: tokens travel to their expert's rank and back, along "ep"; parameters lie
// with a data_parallel plugin, which knows nothing of experts.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include <drivetrain/data_parallel.h>
#include <drivetrain/mesh.h>

#include "experts/expert_model.h"
#include "state/initial_values.h"
#include "step/norm.h"
#include "step/program.h"
#include "train/gather.h"

namespace drivetrain::test {

class ExpertUnit : public Unit {
 public:
  ExpertUnit(std::string name, std::vector<ParamPtr> params) : Unit(std::move(name)), params_(std::move(params)) {}
  std::vector<ParamPtr> params() const override { return params_; }
  Tensors forward(const Tensors& x, StepContext&, Saved&) override { return x; }
  Tensors backward(const Tensors& dy, StepContext&, Saved&) override { return dy; }

 private:
  const std::vector<ParamPtr> params_;
};

class ExpertRank {
 public:
  ExpertRank(const Mesh& mesh, DataParallel& plugin) : mesh_(mesh), plugin_(plugin), experts_(mesh.group("ep")) {
    for (const ExpertModel::Shape& shape : ExpertModel::shapes()) {
      Layout layout = Layout::whole(shape.sizes);
      // All that a layer says of its experts: which axis cuts them.
      if (shape.sizes.size() == 3) layout.dims = {{{"ep"}, {}, 0}, {}, {}};
      params_[shape.name] = std::make_shared<Param>(shape.name, layout, ExpertModel::init());
    }
    units_.units = {
        std::make_shared<ExpertUnit>("in", std::vector{params_["in.weight"], params_["in.bias"]}),
        std::make_shared<ExpertUnit>("experts", std::vector{params_["experts.weight"], params_["out.bias"]})};
    plugin_.attach(units_);
    chunks_ = plugin_.trainables();
    fill_initial_values(chunks_, ExpertModel::kSeed, mesh_);
    for (Trainables& chunk : chunks_) {
      for (Trainable& t : chunk) ExpertModel::round_values(t.value);
      spread(chunk);
    }
  }

  // Runs the steps beside a model of its own, and compares.
  void run() {
    ExpertModel truth;
    GradNorm norm(chunks_, units_.all(), mesh_, at::kCPU);
    for (int64_t step = 1; step <= ExpertModel::kSteps; ++step) {
      truth.compute(step);
      at::Tensor loss = at::zeros({1}, at::kDouble), squares = at::zeros({}, at::kDouble);
      loss.fill_(gradients(step));
      mesh_.world()->all_reduce(loss)->wait();
      EXPECT_EQ(loss.item<double>(), truth.loss) << "step " << step;
      norm.sum_of_squares(chunks_, squares);
      EXPECT_EQ(squares.item<double>(), truth.sum_of_squares()) << "step " << step;
      for (Trainables& chunk : chunks_) {
        for (Trainable& t : chunk) ExpertModel::update(t.value, t.grad);
        spread(chunk);
      }
      truth.update();
    }
    compare(truth);
  }

 private:
  using Counts = std::vector<int64_t>;

  void spread(Trainables& chunk) {
    for (Trainable& t : chunk) t.param->restart_grad();
    plugin_.after_update(chunk, context_);
  }

  void compare(const ExpertModel& truth) const {
    const ParamGather gather(chunks_, units_.all(), mesh_, at::kCPU);
    for (const auto& [name, value] : truth.values) {
      const at::Tensor whole = gather.whole(name).to(at::kDouble);
      EXPECT_TRUE(whole.equal(value)) << name << " on rank " << mesh_.rank();
    }
  }

  const at::Tensor& value(const char* name) { return params_.at(name)->tensor; }
  void add_gradient(const char* name, const at::Tensor& gradient) { accumulate_grad(*params_.at(name), gradient); }

  // One micro-batch, through the plugin's hooks as the runtime calls them. Returns this rank's loss.
  double gradients(int64_t step) {
    const at::NoGradGuard no_grad;
    Program program(2);
    program[0].op = Op::forward, program[1].op = Op::backward;
    context_.step_ = step, context_.at_ = 0, context_.visits_ = expand(program, {{0, 2}});
    const int64_t count = ExpertModel::kTokens / mesh_.world_size();
    tokens_ = ExpertModel::tokens(step, mesh_.rank() * count, count, at::kFloat);
    plugin_.step_begin(context_);
    double loss = 0;
    for (; context_.at_ < context_.visits_.size(); ++context_.at_) {
      const Visit visit = context_.visits_[context_.at_];
      const bool experts = visit.unit == 1;
      if (visit.direction == Direction::forward) {
        plugin_.before_forward(visit, context_);
        experts ? forward_experts() : forward_in();
        plugin_.after_forward(visit, context_);
      } else {
        plugin_.before_backward(visit, context_);
        plugin_.before_grads(visit, context_);
        experts ? backward_experts(loss) : backward_in();
        plugin_.after_backward(visit, context_);
        plugin_.values_done(visit, context_);
      }
    }
    plugin_.flush_grads(context_);
    return loss;
  }

  void forward_in() { h_ = tokens_.x.mm(value("in.weight").t()).add_(value("in.bias")); }
  void backward_in() {
    add_gradient("in.bias", dh_.sum(0));
    add_gradient("in.weight", dh_.t().mm(tokens_.x));
  }

  void forward_experts() {
    send_plan();
    arrived_h_ = travel(h_.index_select(0, order_), sent_, received_);
    at::Tensor y = at::empty_like(arrived_h_);
    for (int64_t n = 0; n < y.size(0); ++n) y[n].copy_(value("experts.weight")[arrived_expert(n)].mv(arrived_h_[n]));
    y_ = in_own_order(travel(y, received_, sent_)).add_(value("out.bias"));
  }

  void backward_experts(double& loss) {
    const at::Tensor d = y_.sub(tokens_.target);
    loss = d.mul(d).to(at::kDouble).sum().item<double>() / 2;
    add_gradient("out.bias", d.sum(0));
    const at::Tensor arrived = travel(d.index_select(0, order_), sent_, received_);
    at::Tensor gradient = at::zeros_like(value("experts.weight")), dh = at::empty_like(arrived);
    for (int64_t n = 0; n < arrived.size(0); ++n) {
      const int64_t expert = arrived_expert(n);
      gradient[expert].add_(arrived[n].outer(arrived_h_[n]));
      dh[n].copy_(value("experts.weight")[expert].t().mv(arrived[n]));
    }
    add_gradient("experts.weight", gradient);
    dh_ = in_own_order(travel(dh, received_, sent_));
  }

  // Tokens sorted by the rank of their expert, how many go and come, and which experts those that come want.
  void send_plan() {
    const int64_t ranks = experts_->size(), held = ExpertModel::kExperts / ranks;
    const auto count = static_cast<int64_t>(tokens_.experts.size());
    std::vector<int64_t> order(tokens_.experts.size());
    std::iota(order.begin(), order.end(), 0);
    const auto rank_of = [&](int64_t n) { return tokens_.experts[static_cast<size_t>(n)] / held; };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return rank_of(a) < rank_of(b); });
    order_ = at::empty({count}, at::kLong);
    at::Tensor wanted = at::empty({count}, at::kLong);
    sent_.assign(static_cast<size_t>(ranks), 0);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t n = order[static_cast<size_t>(i)];
      order_[i].fill_(n), wanted[i].fill_(tokens_.experts[static_cast<size_t>(n)] % held);
      ++sent_[static_cast<size_t>(rank_of(n))];
    }
    const at::Tensor there = at::empty({ranks}, at::kLong), here = at::empty({ranks}, at::kLong);
    std::copy(sent_.begin(), sent_.end(), there.mutable_data_ptr<int64_t>());
    experts_->all_to_all(here, there)->wait();
    received_.assign(here.const_data_ptr<int64_t>(), here.const_data_ptr<int64_t>() + ranks);
    arrived_experts_ = travel(wanted.view({count, 1}), sent_, received_);
  }
  int64_t arrived_expert(int64_t n) const { return arrived_experts_[n].item<int64_t>(); }

  // Rows to the ranks of the experts, or back.
  at::Tensor travel(const at::Tensor& rows, const Counts& sent, const Counts& received) const {
    const int64_t width = rows.size(1);
    const auto elements = [width](Counts counts) {
      for (int64_t& count : counts) count *= width;
      return counts;
    };
    const int64_t here = std::accumulate(received.begin(), received.end(), int64_t{0});
    const at::Tensor out = at::empty({here, width}, rows.options());
    experts_->all_to_all(out, rows.contiguous(), elements(received), elements(sent))->wait();
    return out;
  }
  at::Tensor in_own_order(const at::Tensor& sorted) const {
    at::Tensor own = at::empty_like(sorted);
    own.index_copy_(0, order_, sorted);
    return own;
  }

  const Mesh& mesh_;
  DataParallel& plugin_;
  const GroupPtr experts_;
  std::map<std::string, ParamPtr> params_;
  UnitList units_;
  std::vector<Trainables> chunks_;
  ToyContext context_;
  ExpertModel::Tokens tokens_;
  at::Tensor h_, arrived_h_, arrived_experts_, y_, dh_, order_;
  Counts sent_, received_;
};

}  // namespace drivetrain::test
