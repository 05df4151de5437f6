// Weights of a folder on ranks that hold some of the model's parameters, and padding beside their rows.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "state/weights.h"
#include "support/write_safetensors.h"
#include "unit/state_files.h"

namespace drivetrain {
namespace {

using namespace test;

at::Tensor numbers(int64_t rows, int64_t columns, double first) {
  return at::arange(rows * columns, at::TensorOptions(at::kFloat)).add(first).view({rows, columns});
}

// A model of two parameters; `surplus` is in its folder and in no model.
class StageWeights : public ::testing::Test {
 protected:
  StageWeights() { rules_.rules = {{"embedding", {{"wte", 5}}, false}, {"head", {{"head", 4}}, true}}; }
  std::string write(bool surplus = false) {
    tensors_ = {{"wte", numbers(5, 2, 1)}, {"head", numbers(6, 4, 100)}};
    if (surplus) tensors_["surplus"] = numbers(1, 1, 0);
    std::vector<SafetensorsItem> items;
    for (const auto& [name, t] : tensors_) items.push_back({name, t.scalar_type(), t.sizes().vec()});
    write_safetensors(folder_ / "model.safetensors", items, {},
                      [&](const std::string& name) { return tensors_.at(name); });
    return folder_.path();
  }

  TempFolder folder_;
  WeightRules rules_;
  std::map<std::string, at::Tensor> tensors_;
};

Mesh mesh_of(int64_t rank, int64_t tp) { return Mesh({{"tp", tp}}, rank, tp, nullptr); }

Trainable target(const char* name, Layout layout, int64_t numel) {
  Trainable t;
  t.param = std::make_shared<Param>(name, layout, InitRule::zeros());
  t.layout = std::move(layout);
  t.value = at::full({numel}, -1.0f);
  return t;
}

TEST_F(StageWeights, padding_becomes_zero) {
  write();
  Layout layout = Layout::whole({5, 2});
  layout.dims = {{{"tp"}, {}, 8}, {}};
  at::Tensor padded = at::zeros({8, 2});
  padded.narrow(0, 0, 5).copy_(tensors_.at("wte"));
  for (int64_t rank = 0; rank < 4; ++rank) {
    for (const auto& [begin, end] : {std::pair{0, 4}, {1, 4}, {1, 2}, {3, 4}}) {
      layout.begin = begin, layout.end = end;
      const Trainable t = target("embedding", layout, end - begin);
      load_weights(folder_.path(), rules_, {{t}}, mesh_of(rank, 4));
      EXPECT_TRUE(at::equal(t.value, padded.view({-1}).narrow(0, 4 * rank + begin, end - begin)))
          << rank << " " << begin;
    }
  }
}

TEST_F(StageWeights, transposed_tensors_are_padded_and_cut_by_columns_too) {
  write();
  Layout layout = Layout::whole({4, 6});
  layout.dims = {{{"tp"}, {}, 6}, {}};
  at::Tensor padded = at::zeros({6, 6});
  padded.narrow(0, 0, 4).copy_(tensors_.at("head").t());
  for (int64_t rank = 0; rank < 3; ++rank) {
    const Trainable rows = target("head", layout, 12);
    load_weights(folder_.path(), rules_, {{rows}}, mesh_of(rank, 3));
    EXPECT_TRUE(at::equal(rows.value.view({2, 6}), padded.narrow(0, 2 * rank, 2))) << rank;
    Layout columns = Layout::whole({4, 6});
    columns.dims = {{}, {{"tp"}, {4, 2}}};
    const Trainable some = target("head", columns, 12);
    load_weights(folder_.path(), rules_, {{some}}, mesh_of(rank % 2, 2));
    const at::Tensor all = tensors_.at("head").t();
    EXPECT_TRUE(at::equal(some.value.view({4, 3}).narrow(1, 0, 2), all.narrow(1, 2 * (rank % 2), 2)));
    EXPECT_TRUE(at::equal(some.value.view({4, 3}).narrow(1, 2, 1), all.narrow(1, 4 + rank % 2, 1)));
  }
}

TEST_F(StageWeights, a_stage_loads_its_own_parameters_and_checks_the_names_of_the_whole_folder) {
  const Trainable head = target("head", Layout::whole({4, 6}), 24);
  EXPECT_TRUE(load_weights(write(), rules_, {{head}}, mesh_of(0, 1)).empty());
  EXPECT_TRUE(at::equal(head.value.view({4, 6}), tensors_.at("head").t()));
  write(true);
  const Trainable untouched = target("head", Layout::whole({4, 6}), 24);
  for (const std::vector<Trainables>& held : {std::vector<Trainables>{}, {{untouched}}}) {
    const Caught caught = error_of([&] { load_weights(folder_.path(), rules_, held, mesh_of(0, 1)); });
    EXPECT_NE(caught.text.find("tensor \"surplus\""), std::string::npos) << caught.text;
  }
  EXPECT_TRUE(untouched.value.eq(-1).all().item<bool>());
  rules_.rules[0].parts[0].name = "elsewhere";
  const Caught caught = error_of([&] { load_weights(folder_.path(), rules_, {{head}}, mesh_of(0, 1)); });
  EXPECT_NE(caught.text.find("tensor \"elsewhere\" is missing; it holds embedding of the model"), std::string::npos)
      << caught.text;
}

}  // namespace
}  // namespace drivetrain
