// Parameters in and out of Hugging Face folders, whole and in the slices of many ranks.
#include "state/weights.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <limits>

#include "state/hf_folder.h"
#include "support/write_safetensors.h"
#include "unit/state_files.h"

namespace drivetrain {
namespace {

using namespace test;
using Shape = std::vector<int64_t>;

Mesh mesh_of(int64_t rank, int64_t tp, int64_t dp) { return Mesh({{"tp", tp}, {"dp", dp}}, rank, tp * dp, nullptr); }

at::Tensor numbers(const Shape& shape, float first) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return at::arange(n, at::TensorOptions().dtype(at::kFloat)).add(first).view(shape);
}

Trainable target(const std::string& name, const Layout& layout, const Mesh& mesh) {
  Trainable t;
  t.param = std::make_shared<Param>(name, layout, InitRule::zeros());
  if (name == "embedding") t.param->role = ParamRole::embedding;
  t.layout = layout;
  const int64_t end = layout.end < 0 ? layout.local_numel(mesh) : layout.end;
  t.value = at::full({end - layout.begin}, -1.0f);
  return t;
}

void save_model(const std::string& folder, const WeightRules& rules, const std::map<std::string, Shape>& shapes,
                const FetchParam& fetch, int64_t step = -1, uint64_t max_shard_bytes = kMaxShardBytes) {
  save_weights(folder, {ExportedWeights{.rules = rules, .fetch = fetch}}, shapes, step, max_shard_bytes);
}

// A small foreign model: fused attention in three parts, a transposed matrix, a bias, an embedding that may be tied.
class Weights : public ::testing::Test {
 protected:
  Weights() {
    rules_.prefix = "model.";
    rules_.rules = {{"attn.qkv.weight", {{"q.weight", 4}, {"k.weight", 2}, {"v.weight", 2}}, false},
                    {"mlp.weight", {{"c_fc.weight", 6}}, true},
                    {"bias", {{"bias", 6}}, false},
                    {"embedding", {{"wte", 5}}, false}};
    rules_.ignored = {R"(h\.\d+\.mask)"};
    rules_.tied = {{"lm_head.weight", "embedding"}};
    rules_.config.set("model_type", "tiny");
    foreign_ = {{"model.q.weight", numbers({4, 3}, 100)}, {"model.k.weight", numbers({2, 3}, 200)},
                {"model.v.weight", numbers({2, 3}, 300)}, {"model.c_fc.weight", numbers({3, 6}, 400)},
                {"model.bias", numbers({6}, 500)},        {"model.wte", numbers({5, 2}, 600)}};
    whole_ = {{"attn.qkv.weight",
               at::cat({foreign_["model.q.weight"], foreign_["model.k.weight"], foreign_["model.v.weight"]})},
              {"mlp.weight", foreign_["model.c_fc.weight"].t().contiguous()},
              {"bias", foreign_["model.bias"]},
              {"embedding", foreign_["model.wte"]}};
  }

  std::string write() {
    std::vector<SafetensorsItem> items;
    for (const auto& [name, t] : foreign_) items.push_back({name, t.scalar_type(), t.sizes().vec()});
    write_safetensors(folder_ / "model.safetensors", items, {},
                      [&](const std::string& name) { return foreign_[name]; });
    return folder_.path();
  }
  Trainables whole_targets() {
    const Mesh mesh = mesh_of(0, 1, 1);
    Trainables list;
    for (const auto& [name, t] : whole_) list.push_back(target(name, Layout::whole(t.sizes().vec()), mesh));
    return list;
  }
  void expect_whole() {
    const Trainables targets = whole_targets();
    load_weights(write(), rules_, {targets}, mesh_of(0, 1, 1));
    for (const Trainable& t : targets) {
      EXPECT_TRUE(t.value.equal(whole_[t.param->name].reshape({-1}))) << t.param->name;
    }
  }
  Caught load_error() {
    const Trainables targets = whole_targets();
    write();
    const Caught caught = error_of([&] { load_weights(folder_.path(), rules_, {targets}, mesh_of(0, 1, 1)); });
    for (const Trainable& t : targets)
      EXPECT_TRUE(t.value.eq(-1).all().item<bool>()) << t.param->name << " was changed";
    return caught;
  }

  TempFolder folder_;
  WeightRules rules_;
  std::map<std::string, at::Tensor> foreign_, whole_;
};

TEST_F(Weights, parts_are_stacked_and_transposes_undone) { expect_whole(); }

TEST_F(Weights, a_router_that_is_not_finite_is_refused) {
  foreign_["model.c_fc.weight"].select(0, 1).select(0, 2).fill_(std::numeric_limits<float>::quiet_NaN());
  const Trainables targets = whole_targets();
  const std::string path = write();
  const auto load = [&] { load_weights(path, rules_, {targets}, mesh_of(0, 1, 1)); };
  load();
  for (const Trainable& t : targets)
    if (t.param->name == "mlp.weight") t.param->role = ParamRole::router;
  const Caught caught = error_of(load);
  EXPECT_EQ(caught.code, ErrorCode::config);
  EXPECT_HAS(caught.text, "tensor \"model.c_fc.weight\" in ");
  EXPECT_HAS(caught.text, "a router's, holds numbers that are not finite");
}

TEST_F(Weights, the_prefix_may_be_missing_and_ignored_names_and_equal_ties_do_no_harm) {
  std::map<std::string, at::Tensor> bare;
  for (const auto& [name, t] : foreign_) bare[name.substr(6)] = t;
  foreign_ = bare;
  foreign_["h.12.mask"] = numbers({2}, 0);
  foreign_["lm_head.weight"] = foreign_["wte"];
  expect_whole();
}

TEST_F(Weights, a_part_outside_the_prefix_is_found_and_written_without_it) {
  rules_.rules[3].parts[0] = {"head", 5, false};
  foreign_["head"] = foreign_["model.wte"];
  foreign_.erase("model.wte");
  expect_whole();
}

TEST_F(Weights, other_floating_dtypes_are_converted) {
  foreign_["model.q.weight"] = foreign_["model.q.weight"].to(at::kBFloat16);
  foreign_["model.bias"] = foreign_["model.bias"].to(at::kDouble);
  foreign_["model.wte"] = foreign_["model.wte"].to(at::kHalf);
  expect_whole();  // small whole numbers are exact in all of them
}

// Every rank's slice of every parameter, cut by tensor parallelism and then by uneven flat ranges, is what indexing
// gives.
TEST_F(Weights, slices_of_all_ranks_are_those_of_the_whole) {
  write();
  const std::map<std::string, std::vector<DimSplit>> splits = {
      {"attn.qkv.weight", {{{"tp"}, {4, 2, 2}}, {}}}, {"mlp.weight", {{{"tp"}, {}}, {}}}, {"bias", {{{"tp"}, {}}}}};
  for (int64_t rank = 0; rank < 6; ++rank) {
    const Mesh mesh = mesh_of(rank, 2, 3);
    const int64_t tp = mesh.index("tp"), dp = mesh.index("dp");
    for (const auto& [name, dims] : splits) {
      Layout layout = Layout::whole(whole_[name].sizes().vec());
      layout.dims = dims;
      const int64_t numel = layout.local_numel(mesh), share = (numel + 2) / 3;
      layout.begin = std::min(dp * share, numel);
      layout.end = std::min(layout.begin + share, numel);
      layout.flat_axes = {"dp"};
      const Trainable t = target(name, layout, mesh);
      load_weights(folder_.path(), rules_, {{t}}, mesh);

      std::vector<at::Tensor> blocks;
      int64_t first = 0;
      for (const int64_t block : dims[0].blocks.empty() ? Shape{layout.global_shape[0]} : dims[0].blocks) {
        blocks.push_back(whole_[name].narrow(0, first + tp * block / 2, block / 2));
        first += block;
      }
      const at::Tensor expected = at::cat(blocks).reshape({-1}).narrow(0, layout.begin, layout.end - layout.begin);
      EXPECT_TRUE(t.value.equal(expected)) << name << " on rank " << rank;
    }
  }
}

TEST_F(Weights, columns_are_cut_too) {
  write();
  for (int64_t rank = 0; rank < 3; ++rank) {
    const Mesh mesh = mesh_of(rank, 3, 1);
    Layout layout = Layout::whole({6, 3});
    layout.dims = {{}, {{"tp"}, {}}};
    layout.begin = 1;
    layout.end = 5;
    const Trainable t = target("mlp.weight", layout, mesh);
    load_weights(folder_.path(), rules_, {{t}}, mesh);
    EXPECT_TRUE(t.value.equal(whole_["mlp.weight"].select(1, rank).narrow(0, 1, 4)));
  }
}

TEST_F(Weights, everything_that_does_not_fit_is_told_at_once_and_nothing_changes) {
  foreign_.erase("model.k.weight");
  foreign_["model.c_fc.weight"] = numbers({6, 3}, 0);  // not transposed
  foreign_["model.bias"] = foreign_["model.bias"].to(at::kLong);
  foreign_["surplus"] = numbers({1}, 0);
  const Caught caught = load_error();
  EXPECT_EQ(caught.code, ErrorCode::config);
  EXPECT_HAS(caught.text, folder_.path() + ": does not fit the model:");
  EXPECT_HAS(caught.text, "tensor \"model.k.weight\" is missing; it holds attn.qkv.weight of the model");
  EXPECT_HAS(caught.text, "tensor \"model.c_fc.weight\" has shape [6, 3]; mlp.weight of the model needs [3, 6] there");
  EXPECT_HAS(caught.text, "tensor \"model.bias\" is of type Long; F32, BF16, F16 or F64 can be read");
  EXPECT_HAS(caught.text,
             "tensor \"surplus\" in " + (folder_ / "model.safetensors") + " belongs to nothing in the model");
}

TEST_F(Weights, a_long_list_of_problems_is_cut) {
  for (int i = 0; i < 30; ++i) foreign_["surplus." + std::to_string(i)] = numbers({1}, 0);
  EXPECT_HAS(load_error().text, "and 10 more");
}

TEST_F(Weights, a_tied_tensor_that_differs_is_refused) {
  foreign_["lm_head.weight"] = foreign_["model.wte"].clone();
  foreign_["lm_head.weight"][4][1] = 0;
  const Caught caught = load_error();
  EXPECT_EQ(caught.code, ErrorCode::config);
  EXPECT_HAS(caught.text, "tensor \"lm_head.weight\" differs from \"model.wte\", with which the model ties it");
  foreign_["lm_head.weight"] = numbers({6, 2}, 0);
  EXPECT_HAS(load_error().text, "tensor \"lm_head.weight\" has shape [6, 2]; embedding of the model needs [5, 2]");
}

TEST_F(Weights, a_vocabulary_that_was_padded_is_refused_with_the_way) {
  foreign_["model.wte"] = numbers({8, 2}, 0);
  EXPECT_HAS(load_error().text,
             "tensor \"model.wte\" has shape [8, 2]; embedding of the model needs [5, 2] there; where "
             "a vocabulary was padded, vocab_size of the model (config.json or model.params) has to be 8, too");
  foreign_["model.wte"] = numbers({5, 3}, 0);
  EXPECT_EQ(load_error().text.find("padded"), std::string::npos);
}

TEST_F(Weights, a_model_whose_rules_do_not_add_up_is_our_own_bug) {
  rules_.rules[2].parts[0].rows = 7;
  EXPECT_EQ(load_error().code, ErrorCode::internal);
  rules_.rules.erase(rules_.rules.begin() + 2);
  foreign_.erase("model.bias");
  EXPECT_HAS(load_error().text, "no weight rule was given for bias");
}

// --- writing ---

std::map<std::string, Shape> shapes_of(const std::map<std::string, at::Tensor>& tensors) {
  std::map<std::string, Shape> shapes;
  for (const auto& [name, t] : tensors) shapes[name] = t.sizes().vec();
  return shapes;
}

TEST_F(Weights, a_saved_folder_holds_the_foreign_tensors_and_fetches_each_parameter_once_in_order) {
  std::vector<std::string> fetched, ruled;
  for (const WeightRule& rule : rules_.rules) ruled.push_back(rule.param);
  save_model(folder_ / "deep/out/", rules_, shapes_of(whole_), [&](const std::string& name) {
    fetched.push_back(name);
    return whole_[name];
  });
  EXPECT_EQ(fetched, ruled);
  const HfFolder out(folder_ / "deep/out");
  EXPECT_EQ(out.names().size(), foreign_.size());
  for (const auto& [name, t] : foreign_) EXPECT_TRUE(out.file_of(name)->tensor(name).equal(t)) << name;
  EXPECT_EQ(out.config(), rules_.config);
  EXPECT_EQ(folder_.entries(), 1u);
}

TEST_F(Weights, shards_with_an_index_read_back_the_same) {
  const auto fetch = [&](const std::string& name) { return whole_[name]; };
  save_model(folder_ / "out", rules_, shapes_of(whole_), fetch, 12, 80);
  const HfFolder out(folder_ / "out");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/model-00001-of-00004.safetensors"));
  EXPECT_TRUE(out.warnings().empty());
  EXPECT_EQ(step_of_hf_folder(folder_ / "out"), 12);
  EXPECT_EQ(step_of_hf_folder(folder_ / "none"), -1);
  for (const auto& [name, t] : foreign_) EXPECT_TRUE(out.file_of(name)->tensor(name).equal(t)) << name;
  const Value index = read_json_file(folder_ / "out/model.safetensors.index.json");
  EXPECT_EQ(index.find("metadata")->find("total_size")->as_int(), 4 * (24 + 18 + 6 + 10));
}

TEST_F(Weights, a_failed_save_leaves_nothing) {
  const auto fetch = [&](const std::string& name) -> at::Tensor {
    if (name == "bias") throw fail(ErrorCode::communication, "rank 1 is lost");
    return whole_[name];
  };
  EXPECT_EQ(error_of([&] { save_model(folder_ / "out", rules_, shapes_of(whole_), fetch); }).code,
            ErrorCode::communication);
  EXPECT_EQ(folder_.entries(), 0u);
}

TEST_F(Weights, a_folder_in_use_is_refused) {
  std::filesystem::create_directories(folder_ / "out/x");
  const auto fetch = [&](const std::string& name) { return whole_[name]; };
  const Caught caught = error_of([&] { save_model(folder_ / "out", rules_, shapes_of(whole_), fetch); });
  EXPECT_EQ(caught.code, ErrorCode::config);
  EXPECT_HAS(caught.text, "out: is there already and not an empty folder");
  std::filesystem::remove(folder_ / "out/x");
  save_model(folder_ / "out", rules_, shapes_of(whole_), fetch);
  EXPECT_EQ(HfFolder(folder_ / "out").names().size(), foreign_.size());
}

// A model with another set of weights below it, or the latter alone.
TEST_F(Weights, several_sets_are_one_folder_which_knows_its_step) {
  const auto fetch = [&](const std::string& name) { return whole_[name]; };
  WeightRules bias;
  bias.prefix = "theirs.", bias.config = Value::Object{{"of", "bias"}};
  bias.rules = {{"bias", {{"b", whole_["bias"].size(0)}}}};
  const ExportedWeights model{.rules = rules_, .fetch = fetch};
  ExportedWeights below{.rules = bias, .fetch = fetch, .folder = "adapter"};
  below.weights_file = "adapter.safetensors", below.config_file = "adapter.json";
  save_weights(folder_ / "both", {model, below}, shapes_of(whole_), 7);
  EXPECT_EQ(HfFolder(folder_ / "both").names().size(), foreign_.size());
  const HfFolder adapter(folder_ / "both/adapter", "adapter.safetensors");
  EXPECT_TRUE(adapter.file_of("theirs.b")->tensor("theirs.b").equal(whole_["bias"]));
  EXPECT_EQ(read_json_file(folder_ / "both/adapter/adapter.json"), bias.config);
  EXPECT_EQ(step_of_hf_folder(folder_ / "both"), 7);
  save_weights(folder_ / "alone", {below}, shapes_of(whole_), 8);
  EXPECT_EQ(step_of_hf_folder(folder_ / "alone"), 8);
  EXPECT_HAS(error_of([&] { HfFolder(folder_ / "alone", "adapter.safetensors"); }).text, "has no adapter.safetensors");
}

// One rule per tensor of a golden folder; `transposed`: the matrices that GPT-2 stores [in, out].
void expect_golden_comes_back(const std::string& model, const std::string& prefix) {
  const HfFolder golden_folder(golden(model));
  TempFolder folder;
  WeightRules rules;
  rules.prefix = prefix;
  rules.config = golden_folder.config();
  std::map<std::string, Shape> shapes;
  Trainables targets;
  const Mesh mesh = mesh_of(0, 1, 1);
  for (const std::string& name : golden_folder.names()) {
    Shape shape = golden_folder.file_of(name)->shape(name);
    const bool transposed = prefix == "transformer." && name.find(".c_") != std::string::npos && shape.size() == 2;
    if (transposed) std::swap(shape[0], shape[1]);
    const bool prefixed = name.rfind(prefix, 0) == 0;
    rules.rules.push_back({name, {{prefixed ? name.substr(prefix.size()) : name, shape[0], prefixed}}, transposed});
    shapes[name] = shape;
    targets.push_back(target(name, Layout::whole(shape), mesh));
  }
  load_weights(golden(model), rules, {targets}, mesh);
  std::map<std::string, at::Tensor> loaded;
  for (const Trainable& t : targets) loaded[t.param->name] = t.value.view(shapes[t.param->name]);
  save_model(folder / "out", rules, shapes, [&](const std::string& name) { return loaded[name]; });

  EXPECT_EQ(read_bytes(folder / "out/model.safetensors"), read_bytes(golden(model + "/model.safetensors")));
  for (const char* file : {"/config.json", "/generation_config.json"}) {
    const Value ours = read_json_file(folder / "out" + file), theirs = read_json_file(golden(model + file));
    EXPECT_EQ(ours.members().size(), theirs.members().size()) << file;
    for (const Value::Member& m : theirs.members()) {
      ASSERT_NE(ours.find(m.key), nullptr) << m.key;
      EXPECT_EQ(*ours.find(m.key), m.value) << m.key;
    }
  }
}

TEST(GoldenFolders, gpt2_tiny_is_rewritten_byte_for_byte) {
  expect_golden_comes_back("gpt2_tiny/model", "transformer.");
}
TEST(GoldenFolders, llama_tiny_is_rewritten_byte_for_byte) { expect_golden_comes_back("llama_tiny/model", "model."); }

}  // namespace
}  // namespace drivetrain
