#include <drivetrain/testkit/optimizer/ranks.h>

#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include <drivetrain/communicator.h>
#include <drivetrain/mesh.h>
#include <drivetrain/toolkit/layout/slice_boxes.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/kit/rank_threads.h>
#include <drivetrain/testkit/optimizer/updates.h>

namespace drivetrain::test {
namespace {

constexpr int64_t kRankSteps = 3;

// A parameter, and how tensor parallelism cuts it.
struct CutParam {
  const char* name;
  std::vector<int64_t> shape;
  ParamRole role;
  std::vector<DimSplit> dims = {};
  std::vector<int64_t> blocks = {};

  uint64_t seed(int64_t step) const { return 100 * static_cast<uint64_t>(step + 1) + name[0]; }
  at::Tensor numbers(uint64_t from) const {
    return uneven_numbers(Layout::whole(shape).global_numel(), from).view(shape);
  }
};

// How ranks share parameters: flat ranges over these axes, copies over the others.
struct RankShares {
  const char* name;
  std::vector<Axis> axes;
  std::vector<std::string> flat_axes;
};

const DimSplit kWhole;

const std::vector<CutParam>& cut_params() {
  static const std::vector<CutParam> params = {
      {"qkv.weight", {24, 20}, ParamRole::matrix, {{{"tp"}, {8, 8, 8}, 0}, kWhole}, {8, 8, 8}},
      {"out.weight", {12, 36}, ParamRole::matrix, {kWhole, {{"tp"}, {}, 0}}},
      {"bias", {22}, ParamRole::bias, {{{"tp"}, {}, 0}}},
      {"norm.weight", {17}, ParamRole::norm},
      {"table", {30, 4}, ParamRole::embedding, {{{"tp"}, {}, 0}, kWhole}},
  };
  return params;
}

const std::vector<RankShares>& rank_shares() {
  static const std::vector<RankShares> shares = {
      {"flat ranges", {{"dp", 3}}, {"dp"}},
      {"cut dimensions", {{"tp", 2}}, {}},
      {"cut dimensions and flat ranges", {{"tp", 2}, {"dp", 2}}, {"dp"}},
      {"cut dimensions and copies", {{"tp", 2}, {"dp", 2}}, {}},
      {"ranks that share a sequence, and flat ranges over them", {{"cp", 2}, {"dp", 2}}, {"cp", "dp"}},
  };
  return shares;
}

// One rank's part of a parameter; the first rank has most, another may have nothing.
Trainable part_of(const CutParam& of, const RankShares& shares, const Mesh& mesh, const Optimizer& optimizer) {
  Layout layout = Layout::whole(of.shape);
  if (mesh.size("tp") > 1) layout.dims = of.dims;
  const auto param = std::make_shared<Param>(of.name, layout, InitRule::zeros());
  param->role = of.role, param->blocks = of.blocks;
  int64_t ranks = 1, index = 0;
  for (const std::string& axis : shares.flat_axes) index += ranks * mesh.index(axis), ranks *= mesh.size(axis);
  const int64_t local = layout.local_numel(mesh);
  const auto cut = [&](int64_t i) { return i == 0 ? 0 : i == ranks ? local : std::min(local, local / 2 + 3 * i); };
  Trainable t;
  t.param = param, t.layout = layout, t.group = optimizer.group_of(*param);
  t.layout.begin = cut(index), t.layout.end = cut(index + 1);
  if (ranks > 1) t.layout.flat_axes = shares.flat_axes;
  t.value = t.working = at::zeros({t.layout.end - t.layout.begin}, at::TensorOptions(at::kFloat));
  t.grad = at::zeros_like(t.value);
  return t;
}

void fill(const Trainable& t, const Mesh& mesh, const at::Tensor& held, const at::Tensor& whole) {
  const SliceMap map = slice_map(t.layout, mesh);
  for (const SliceBox& box : map.boxes) map.in_held(box, held).copy_(map.in_whole(box, whole));
}

// Values after the updates, of every parameter what this rank has.
Trainables updated(Optimizer& optimizer, const RankShares& shares, const Mesh& mesh) {
  Trainables all;
  for (const CutParam& of : cut_params()) {
    all.push_back(part_of(of, shares, mesh, optimizer));
    fill(all.back(), mesh, all.back().value, of.numbers(of.seed(-1)));
  }
  optimizer.init(all);
  for (int64_t step = 0; step < kRankSteps; ++step) {
    for (size_t i = 0; i < all.size(); ++i)
      fill(all[i], mesh, all[i].grad, cut_params()[i].numbers(cut_params()[i].seed(step)));
    optimizer.update(all, update_args(optimizer, step, 0.5));
  }
  return all;
}

std::shared_ptr<Optimizer> optimizer_of(const Subject& subject, const Services& services) {
  return installed_plugins().make<Optimizer>(Optimizer::kKind, subject.name, subject.options, services);
}

std::vector<at::Tensor> updated_alone(const Subject& subject) {
  Host host;
  const Mesh alone({}, 0, 1, nullptr);
  host.services.mesh = &alone;
  std::vector<at::Tensor> values;
  size_t i = 0;
  for (const Trainable& t : updated(*optimizer_of(subject, host.services), {"", {}, {}}, alone))
    values.push_back(t.value.view(cut_params()[i++].shape));
  return values;
}

void check_share(const Subject& subject, const RankShares& shares, const std::vector<at::Tensor>& wanted) {
  int64_t ranks = 1;
  for (const Axis& axis : shares.axes) ranks *= axis.size;
  const std::shared_ptr<Store> store = make_memory_store();
  expect_no_errors(on_threads(ranks, [&](int64_t rank) {
    LinesLog log;
    Services services{
        .log = log, .store = *store, .rank = rank, .world_size = ranks, .local_rank = rank, .local_size = ranks};
    const auto communicator = installed_plugins().make<Communicator>("local", R"({"timeout_s": 20})", services);
    const Mesh mesh(shares.axes, rank, ranks, communicator);
    const InstalledMaker maker(services);
    services.mesh = &mesh, services.plugins = &maker;
    mesh.world();  // everyone knows everyone before the first may be done and leave
    size_t i = 0;
    for (const Trainable& t : updated(*optimizer_of(subject, services), shares, mesh)) {
      const at::Tensor whole = wanted[i++], own = at::zeros_like(t.value);
      fill(t, mesh, own, whole);
      EXPECT_TRUE(at::equal(t.value, own)) << t.param->name << " on rank " << rank << ": " << shares.name;
    }
  }));
}

}  // namespace

void check_optimizer_on_ranks(const Subject& subject) {
  const std::vector<at::Tensor> wanted = updated_alone(subject);
  for (const RankShares& shares : rank_shares()) check_share(subject, shares, wanted);
}

}  // namespace drivetrain::test
