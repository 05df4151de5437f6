// What ranks send to the owners of matrices and get back, against what the plugin says of it in the plan; and what it
// says of products.
#include <gtest/gtest.h>

#include <ATen/ops/zeros.h>

#include <map>
#include <mutex>

#include <drivetrain/plan_record.h>
#include <drivetrain/planned_update.h>
#include <drivetrain/unit.h>

#include <drivetrain/testkit/kit/passing_group.h>
#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/kit/rank_threads.h>
#include <drivetrain/testkit/optimizer/updates.h>

#include "newton_schulz.h"
#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

// Bytes from one global rank to another.
struct Counts {
  std::mutex mutex;
  std::map<std::pair<int64_t, int64_t>, double> bytes;
};

// Another's group, which counts what goes to other ranks in parts of uneven sizes.
class CountingGroup final : public PassingGroup {
 public:
  CountingGroup(GroupPtr inner, Counts& counts) : PassingGroup(std::move(inner)), counts_(counts) {}
  using PassingGroup::all_to_all;
  WorkPtr all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                     const std::vector<int64_t>& sent) override {
    const std::lock_guard lock(counts_.mutex);
    for (size_t to = 0; to < sent.size(); ++to)
      if (static_cast<int64_t>(to) != rank())
        counts_.bytes[{ranks()[static_cast<size_t>(rank())], ranks()[to]}] +=
            static_cast<double>(sent[to]) * static_cast<double>(in.element_size());
    return PassingGroup::all_to_all(out, in, received, sent);
  }

 private:
  Counts& counts_;
};

class CountingCommunicator final : public Communicator {
 public:
  CountingCommunicator(std::shared_ptr<Communicator> inner, Counts& counts)
      : inner_(std::move(inner)), counts_(counts) {}
  GroupPtr make_group(const std::vector<int64_t>& ranks, const std::string& label) override {
    return std::make_shared<CountingGroup>(inner_->make_group(ranks, label), counts_);
  }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  const std::shared_ptr<Communicator> inner_;
  Counts& counts_;
};

class Block final : public Unit {
 public:
  Block(std::string name, std::vector<ParamPtr> params) : Unit(std::move(name)), params_(std::move(params)) {}
  std::vector<ParamPtr> params() const override { return params_; }
  Tensors forward(const Tensors& x, StepContext&, Saved&) override { return x; }
  Tensors backward(const Tensors& dy, StepContext&, Saved&) override { return dy; }

 private:
  const std::vector<ParamPtr> params_;
};

struct Case {
  const char* name;
  std::vector<Axis> axes;
  std::vector<std::string> flat_axes;  // that cut what a rank has of a block into flat ranges
  bool tensor = false;                 // columns and rows are cut along tp
};

constexpr int64_t kBlocks = 9, kHidden = 16;

UnitList chain(const Case& c) {
  UnitList units;
  const std::vector<std::string> tp = c.tensor ? std::vector<std::string>{"tp"} : std::vector<std::string>();
  for (int64_t b = 0; b < kBlocks; ++b) {
    std::vector<ParamPtr> params;
    const auto add = [&](const char* what, std::vector<int64_t> shape, std::vector<DimSplit> dims,
                         std::vector<int64_t> blocks = {}) {
      params.push_back(test_param(concat("block.", b, ".", what), shape));
      if (c.tensor) params.back()->layout.dims = std::move(dims);
      params.back()->blocks = std::move(blocks);
    };
    const std::vector<int64_t> fused = {kHidden, kHidden / 2, kHidden / 2};
    add("qkv", {2 * kHidden, kHidden}, {{tp, fused, 0}, {}}, fused);
    add("out", {kHidden, kHidden}, {{}, {tp, {}, 0}});
    const std::vector<int64_t> halves = {4 * kHidden, 4 * kHidden};
    add("up", {8 * kHidden, kHidden}, {{tp, halves, 0}, {}}, halves);
    add("down", {kHidden, 4 * kHidden}, {{}, {tp, {}, 0}});
    add("norm", {kHidden}, {});
    units.units.push_back(std::make_shared<Block>(concat("block.", b), params));
  }
  return units;
}

// As ZeRO and FSDP cut a block: each rank has one range of what tensor parallelism leaves of it.
Trainables held_by_rank(const Optimizer& optimizer, const Case& c, const UnitList& units, const Mesh& mesh) {
  int64_t ranks = 1, index = 0;
  for (const std::string& axis : c.flat_axes) index += ranks * mesh.index(axis), ranks *= mesh.size(axis);
  Trainables list;
  for (const UnitPtr& unit : units.units) {
    int64_t whole = 0, at = 0;
    for (const ParamPtr& param : unit->params()) whole += param->layout.local_numel(mesh);
    const int64_t first = whole * index / ranks, last = whole * (index + 1) / ranks;
    for (const ParamPtr& param : unit->params()) {
      const int64_t n = param->layout.local_numel(mesh);
      const int64_t begin = std::clamp<int64_t>(first - at, 0, n), end = std::clamp<int64_t>(last - at, 0, n);
      at += n;
      Trainable t;
      t.param = param, t.layout = param->layout, t.group = optimizer.group_of(*param);
      if (ranks > 1) t.layout.begin = begin, t.layout.end = end, t.layout.flat_axes = c.flat_axes;
      t.value = t.working = at::zeros({end - begin}, at::kFloat), t.grad = at::zeros_like(t.value);
      list.push_back(t);
    }
  }
  return list;
}

// The outermost of the axes along which two ranks differ.
std::string axis_between(const std::vector<Axis>& axes, int64_t a, int64_t b) {
  std::string outermost;
  for (const Axis& axis : axes) {
    if (a % axis.size != b % axis.size) outermost = axis.name;
    a /= axis.size, b /= axis.size;
  }
  return outermost;
}

class MuonTraffic : public testing::TestWithParam<Case> {};

TEST_P(MuonTraffic, is_what_the_plan_says) {
  const Case& c = GetParam();
  int64_t world = 1;
  for (const Axis& axis : c.axes) world *= axis.size;
  Counts counts;
  std::map<std::string, double> planned;  // by axis
  const auto store = make_memory_store();
  expect_no_errors(on_threads(world, [&](int64_t rank) {
    Host host;
    Services services{
        .log = host.log, .store = *store, .rank = rank, .world_size = world, .local_rank = rank, .local_size = world};
    const auto communicator = std::make_shared<CountingCommunicator>(
        installed_plugins().make<Communicator>("local", R"({"timeout_s": 20, "spin": 0})", services), counts);
    const Mesh mesh(c.axes, rank, world, communicator);
    const InstalledMaker maker{host.services};
    host.services.mesh = &mesh, host.services.plugins = &maker;
    const auto optimizer = make_plugin<Optimizer>(host, "muon");
    const UnitList units = chain(c);
    const Trainables all = held_by_rank(*optimizer, c, units, mesh);
    optimizer->init(all);
    mesh.world()->barrier();
    optimizer->update(all, update_args(*optimizer, 0));
    mesh.world()->barrier();
    if (rank != 0) return;
    double updated = 0;
    for (const Trainable& t : all) updated += static_cast<double>(t.value.numel());
    PlanRecord record({}, {});
    dynamic_cast<const UpdatePlan&>(*optimizer).plan_update(record, {{units, mesh}, updated});
    for (const PlanRecord::Traffic& traffic : record.traffics()) planned[traffic.axis] += traffic.bytes;
  }));
  std::map<std::string, double> sent;
  for (const auto& [pair, bytes] : counts.bytes)
    sent[axis_between(c.axes, pair.first, pair.second)] += bytes / static_cast<double>(world);
  EXPECT_FALSE(sent.empty());
  // Of flat ranges an owner may have more or less than the mean of its own matrices.
  const bool exact = c.flat_axes.empty();
  double all_planned = 0, all_sent = 0;
  for (const Axis& axis : c.axes) {
    EXPECT_NEAR(planned[axis.name], sent[axis.name], (exact ? 1e-9 : 0.15) * sent[axis.name]) << axis.name;
    all_planned += planned[axis.name], all_sent += sent[axis.name];
  }
  EXPECT_NEAR(all_planned, all_sent, (exact ? 1e-9 : 0.05) * all_sent);
}

const Axis kTp = {"tp", 2}, kDp = {"dp", 2, 0, true}, kReplica = {"replica", 2, 0, true}, kFour = {"dp", 4, 0, true};
const Case kCases[] = {{"copies", {kFour}, {}},
                       {"flat_ranges", {kFour}, {"dp"}},
                       {"flat_ranges_in_groups_of_copies", {kDp, kReplica}, {"dp"}},
                       {"flat_ranges_over_two_axes", {kDp, kReplica}, {"dp", "replica"}},
                       {"tensor_parallel", {kTp}, {}, true},
                       {"tensor_parallel_and_copies", {kTp, kDp}, {}, true},
                       {"tensor_parallel_and_flat_ranges", {kTp, kDp}, {"dp"}, true}};
INSTANTIATE_TEST_SUITE_P(Cuts, MuonTraffic, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// On a processor half of each symmetric product.
TEST(MuonPlan, has_the_operations_of_all_matrices_once_over_the_ranks_of_a_stage) {
  for (const char* method : {"gram", "standard"})
    for (const int64_t ranks : {1, 4}) {
      Host host;
      const Mesh mesh({{"dp", ranks}}, 0, ranks, nullptr);
      const InstalledMaker maker{host.services};
      host.services.mesh = &mesh, host.services.plugins = &maker;
      const auto optimizer =
          make_plugin<Optimizer>(host, "muon", concat(R"({"ns_dtype": "float32", "ns_method": ")", method, "\"}"));
      const UnitList units = chain({"", {}, {}});
      PlanRecord record({}, {});
      const UpdateWork work = dynamic_cast<const UpdatePlan&>(*optimizer).plan_update(record, {{units, mesh}, 1e9});
      double flops = 0, whole = 0;
      for (const UpdateWork::Product& p : work.products) {
        flops += 2 * p.rows * p.out * p.in * p.count;
        EXPECT_EQ(p.dtype, "float32");
      }
      muon::NewtonSchulz how;
      how.gram = std::string(method) == "gram";
      for (const auto& [rows, columns] :
           {std::pair<int64_t, int64_t>{16, 16}, {8, 16}, {8, 16}, {16, 16}, {64, 16}, {64, 16}, {16, 64}})
        whole += static_cast<double>(kBlocks) * muon::newton_schulz_flops(rows, columns, how);
      // Nine blocks over four ranks: the busiest has some matrices more than the mean.
      EXPECT_GE(flops, whole / static_cast<double>(ranks) * (1 - 1e-9));
      EXPECT_LE(flops, whole / static_cast<double>(ranks) * (ranks == 1 ? 1 + 1e-9 : 1.15));
      EXPECT_GT(work.passed_bytes, 0);
      EXPECT_EQ(record.memories().size(), 1u);
      EXPECT_EQ(record.memories()[0].memory_class, MemoryClass::buffers);
    }
}

}  // namespace
}  // namespace drivetrain::test
