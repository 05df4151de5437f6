// Weight rules whose parts share tensors, stand in them in another order, or have padding below them: read into whole
// parameters and slices, and as checkpoints, both ways.
#include "state/foreign_tensors.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <map>

#include "checkpoint_tools/renamed_checkpoint.h"
#include "formats/open_folder.h"
#include "state/weights.h"
#include "support/tensor_checkpoint.h"
#include "unit/state_files.h"

namespace drivetrain {
namespace {

using namespace test;

at::Tensor counted(const std::vector<int64_t>& shape, float first) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return at::arange(n, at::TensorOptions().dtype(at::kFloat)).add(first).view(shape);
}

// Two heads of two rows for q, one for k, in one tensor by head; a table with padding; columns of a transposed matrix.
class ForeignTensors : public ::testing::Test {
 protected:
  ForeignTensors() {
    rules_.rules = {{"qk", {{"heads", 2}, {"heads", 2, true, 3}, {"heads", 1, true, 2}, {"heads", 1, true, 5}}, false},
                    {"table", {{"words", 4, true, 0, true}}, false},
                    {"turned", {{"columns", 2, true, 1}, {"columns", 1}}, true}};
    rules_.tied = {{"output", "table"}};
    foreign_ = {{"model/heads", counted({6, 3}, 100)},
                {"model/words", counted({7, 2}, 200)},
                {"model/columns", counted({2, 3}, 300)}};
    const auto heads = foreign_["model/heads"], columns = foreign_["model/columns"].t();
    whole_ = {
        {"qk", at::cat({heads.narrow(0, 0, 2), heads.narrow(0, 3, 2), heads.narrow(0, 2, 1), heads.narrow(0, 5, 1)})},
        {"table", foreign_["model/words"].narrow(0, 0, 4).contiguous()},
        {"turned", at::cat({columns.narrow(0, 1, 2), columns.narrow(0, 0, 1)})}};
  }

  ParamShapes shapes() const {
    ParamShapes shapes;
    for (const auto& [name, tensor] : whole_) shapes[name] = tensor.sizes().vec();
    return shapes;
  }
  std::shared_ptr<const Checkpoint> checkpoint() const { return std::make_shared<TensorCheckpoint>(foreign_); }
  static Trainable target(const std::string& name, const Layout& layout, const Mesh& mesh) {
    Trainable t;
    t.param = std::make_shared<Param>(name, layout, InitRule::zeros());
    t.layout = layout;
    t.value = at::full({(layout.end < 0 ? layout.local_numel(mesh) : layout.end) - layout.begin}, -1.0f);
    return t;
  }
  void load(const Trainables& targets, const Mesh& mesh) const {
    load_weights(*weights_of(checkpoint(), "folder"), rules_, {targets}, mesh);
  }
  Trainables load_whole() const {
    const Mesh mesh({}, 0, 1, nullptr);
    Trainables targets;
    for (const auto& [name, t] : whole_) targets.push_back(target(name, Layout::whole(t.sizes().vec()), mesh));
    load(targets, mesh);
    return targets;
  }

  WeightRules rules_;
  NamedTensors foreign_, whole_;
};

TEST_F(ForeignTensors, rows_are_taken_from_where_the_rules_say) {
  foreign_["model/output"] = foreign_["model/words"];
  for (const Trainable& t : load_whole())
    EXPECT_TRUE(t.value.equal(whole_[t.param->name].reshape({-1}))) << t.param->name;
}

TEST_F(ForeignTensors, slices_of_ranks_are_those_of_the_whole) {
  for (int64_t rank = 0; rank < 2; ++rank) {
    const Mesh mesh({{"tp", 2}}, rank, 2, nullptr);
    Layout layout = Layout::whole({6, 3});
    layout.dims = {{{"tp"}, {4, 2}}, {}};
    layout.begin = 1, layout.end = 8;
    const Trainable t = target("qk", layout, mesh);
    load({t}, mesh);
    const at::Tensor mine = at::cat({whole_["qk"].narrow(0, 2 * rank, 2), whole_["qk"].narrow(0, 4 + rank, 1)});
    EXPECT_TRUE(t.value.equal(mine.reshape({-1}).narrow(0, 1, 7))) << rank;
  }
}

TEST_F(ForeignTensors, only_padding_may_have_further_rows) {
  const auto refused = [&](const std::string& words) { EXPECT_HAS(error_of([&] { load_whole(); }).text, words); };
  foreign_["model/words"] = counted({3, 2}, 0);
  refused("tensor \"words\" has shape [3, 2]; table of the model needs [4, 2] or more rows there");
  foreign_["model/words"] = counted({7, 3}, 0);
  refused("has shape [7, 3]");
  foreign_["model/words"] = counted({7, 2}, 0);
  foreign_["model/heads"] = counted({7, 3}, 0);
  refused("tensor \"heads\" has shape [7, 3]; qk of the model needs [6, 3] there");
  foreign_.erase("model/heads");
  const std::string text = error_of([&] { load_whole(); }).text;
  EXPECT_HAS(text, "\"heads\" is missing");
  EXPECT_EQ(text.find("\"heads\""), text.rfind("\"heads\"")) << "once, however many parts it has: " << text;
}

TEST_F(ForeignTensors, a_tied_table_may_be_padded_and_has_to_be_equal) {
  foreign_["model/output"] = foreign_["model/words"].clone();
  foreign_["model/output"][6][0] = -1;  // padding
  load_whole();
  foreign_["model/output"][3][0] = -1;
  EXPECT_HAS(error_of([&] { load_whole(); }).text, "\"output\" differs from \"words\"");
}

TEST_F(ForeignTensors, a_checkpoint_has_the_parameters_and_moments_of_the_rules) {
  foreign_["optimizer/heads.exp_avg"] = foreign_["model/heads"] * 2;
  const NamedTensors found = read_tensors(*as_native(checkpoint(), rules_, shapes(), "optimizer/adamw"));
  for (const auto& [name, tensor] : whole_) EXPECT_TRUE(at::equal(found.at("model/" + name), tensor)) << name;
  EXPECT_TRUE(at::equal(found.at("optimizer/adamw/qk.exp_avg"), whole_["qk"] * 2));
  foreign_["model/heads"] = counted({5, 3}, 0);
  EXPECT_HAS(error_of([&] { as_native(checkpoint(), rules_, shapes(), ""); }).text, "[6, 3] is wanted");
}

TEST_F(ForeignTensors, a_tensor_of_several_parts_is_put_together_when_written) {
  rules_.rules.resize(2);
  rules_.rules.push_back({"other", {{"shared", 2, true, 1}}, false});
  rules_.rules.push_back({"another", {{"shared", 1}}, false});
  whole_["other"] = counted({2, 3}, 400), whole_["another"] = counted({1, 3}, 500);
  NamedTensors native{{"optimizer/adamw/qk.exp_avg", whole_["qk"] * 2}};
  for (const auto& [name, tensor] : whole_) native["model/" + name] = tensor;
  const auto made = as_foreign(std::make_shared<TensorCheckpoint>(native), rules_, shapes(), Value::object());
  const NamedTensors found = read_tensors(*made);
  EXPECT_EQ(found.size(), 4u);
  EXPECT_TRUE(at::equal(found.at("model/heads"), foreign_["model/heads"]));
  EXPECT_TRUE(at::equal(found.at("optimizer/heads.exp_avg"), foreign_["model/heads"] * 2));
  EXPECT_TRUE(at::equal(found.at("model/words"), whole_["table"])) << "without padding";
  EXPECT_TRUE(at::equal(found.at("model/shared"), at::cat({whole_["another"], whole_["other"]})));
}

TEST_F(ForeignTensors, what_no_format_writes_is_our_own_bug) {
  NamedTensors native;
  for (const auto& [name, tensor] : whole_) native["model/" + name] = tensor;
  const auto write = [&] {
    return error_of([&] { as_foreign(std::make_shared<TensorCheckpoint>(native), rules_, shapes(), Value::object()); });
  };
  EXPECT_EQ(write().code, ErrorCode::internal);
  EXPECT_HAS(write().text, "columns");
  rules_.rules.pop_back();
  EXPECT_EQ(write().text, "");
  rules_.rules[0].parts[3].first = 6;
  EXPECT_HAS(write().text, "heads");
  const TempFolder folder;
  const auto fetch = [&](const std::string& name) { return whole_[name]; };
  const std::vector<ExportedWeights> model = {{.rules = rules_, .fetch = fetch}};
  EXPECT_EQ(error_of([&] { save_weights(folder.path() + "/out", model, shapes()); }).code, ErrorCode::internal);
  rules_.rules[0].parts[3].first = -1;
  EXPECT_EQ(error_of([&] { foreign_tensors(rules_); }).code, ErrorCode::internal);
}

}  // namespace
}  // namespace drivetrain
