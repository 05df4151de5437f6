// A rank's parts of a small model that is cut in every way at once: padded rows, fused blocks, columns (over tp), flat
// ranges (over dp), pipeline stages, one parameter on the first and the last of them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>

#include <drivetrain/mesh.h>
#include <drivetrain/random.h>
#include <drivetrain/schedule.h>
#include <drivetrain/toolkit/sharding/flat_unit.h>

namespace drivetrain::test {

// Every mesh of up to 8 ranks with these axes.
inline std::vector<std::vector<Axis>> toy_meshes() {
  std::vector<std::vector<Axis>> meshes;
  for (const int64_t tp : {1, 2})
    for (const int64_t dp : {1, 2, 3})
      for (const int64_t pp : {1, 2, 4})
        if (tp * dp * pp <= 8) meshes.push_back({{"tp", tp}, {"dp", dp, 0, true}, {Schedule::kAxis, pp}});
  return meshes;
}

inline constexpr uint64_t kToySeed = 7;

struct ToyShards {
  // `shared`: dp shares the parameters out, else its ranks hold copies. More options as FlatUnit has them.
  explicit ToyShards(const Mesh& mesh, bool shared = true, FlatOptions options = {}) {
    model = parameters();
    const int64_t stages = mesh.size(Schedule::kAxis), stage = mesh.index(Schedule::kAxis);
    options.shards = shared ? mesh.size("dp") : 1, options.shard = shared ? mesh.index("dp") : 0;
    options.shard_axes = {"dp"}, options.pinned = false;
    model.front()->tied_over_stages = stages > 1;
    std::vector<ParamPtr> mine;
    for (size_t i = 1; i < model.size(); ++i)
      if (static_cast<int64_t>(i - 1) * stages / static_cast<int64_t>(model.size() - 1) == stage)
        mine.push_back(model[i]);
    if (stage == 0 || stage == stages - 1)
      units.push_back(std::make_unique<FlatUnit>(std::vector<ParamPtr>{model[0]}, mesh, options));
    if (stage > 0) counted_elsewhere = {model[0]->name};
    units.push_back(std::make_unique<FlatUnit>(mine, mesh, options));
    for (const auto& unit : units) chunks.insert(chunks.end(), unit->pieces().begin(), unit->pieces().end());
  }

  // A parameter as its initial values have it, in one piece.
  static at::Tensor whole(const Param& param) {
    at::Tensor values = at::empty({param.layout.global_numel()});
    fill_normal(values, kToySeed, param.name, 0, param.init.std);
    return values.view(param.layout.global_shape);
  }

  static std::vector<ParamPtr> parameters() {
    std::vector<ParamPtr> list;
    const auto add = [&](const char* name, std::vector<int64_t> shape, std::vector<DimSplit> dims,
                         std::vector<std::string> partial) {
      Layout layout = Layout::whole(std::move(shape));
      layout.dims = std::move(dims), layout.partial_over = std::move(partial);
      list.push_back(std::make_shared<Param>(name, layout, InitRule::normal(0.5)));
    };
    add("embedding", {257, 24}, {{{"tp"}, {}, 272}, {}}, {});
    add("qkv", {48, 96}, {{{"tp"}, {24, 12, 12}}, {}}, {});
    add("norm", {1500}, {}, {"tp"});
    add("rows", {40, 64}, {{}, {{"tp"}, {}}}, {});
    add("bias", {40}, {}, {"tp"});
    add("wide", {3, 5000}, {{}, {{"tp"}, {}}}, {});
    add("small", {2}, {}, {});
    return list;
  }

  std::vector<ParamPtr> model;  // in order, those of other stages included
  std::vector<std::unique_ptr<FlatUnit>> units;
  std::vector<Trainables> chunks;
  std::set<std::string> counted_elsewhere;
};

}  // namespace drivetrain::test
