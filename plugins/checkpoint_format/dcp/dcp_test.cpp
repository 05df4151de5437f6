// checkpoint_format/dcp: what PyTorch wrote (tests/golden/data), what we write ourselves, cuts of any kind.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randn.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include <drivetrain/checkpoint_format.h>
#include <drivetrain/safetensors.h>
#include <drivetrain/toolkit/torch_files/dcp_folder.h>
#include <drivetrain/toolkit/torch_files/torch_writer.h>

#include <drivetrain/testkit/kit/temp_folder.h>

#include "keys.h"
#include "support/key_table_rows.h"
#include "support/plugin_under_test.h"
#include "support/spoilt_files.h"
#include "support/tensor_checkpoint.h"

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;
const std::string kGolden = std::string(DRIVETRAIN_GOLDEN_DIR) + "/deepspeed_checkpoints";

struct DcpTest : ::testing::Test {
  std::string refusal(const std::string& folder) const {
    try {
      format_->open(folder, "");
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was thrown";
  }
  const TempFolder temporary_;
  const Host host_;
  const std::unique_ptr<CheckpointFormat> format_ = make_plugin<CheckpointFormat>(host_, "dcp");
};

TEST_F(DcpTest, what_pytorch_wrote_is_read_to_the_bit) {
  const std::string folder = kGolden + "/dcp";
  EXPECT_NE(format_->recognizes(folder), "");
  EXPECT_EQ(format_->recognizes(kGolden + "/zero2"), "");
  const auto checkpoint = format_->open(folder, "");
  EXPECT_EQ(checkpoint->facts().find("step")->as_int(), 2);
  const auto expected = SafetensorsFile::open(kGolden + "/zero0.safetensors");
  const NamedTensors found = read_tensors(*checkpoint);
  EXPECT_EQ(found.size(), 16u);
  for (const auto& [name, tensor] : found) EXPECT_TRUE(at::equal(tensor, expected.tensor(name))) << name;
  EXPECT_TRUE(checkpoint->verify().empty());
  for (const char* whole : {"dcp", "accelerate", "titan"})
    EXPECT_EQ(format_->open(kGolden + "/" + whole, "")->facts().find("notes")->to_json(), "[]") << whole;
}

TEST_F(DcpTest, what_nobody_knows_is_named) {
  const std::string folder = temporary_.path() + "/dcp", file = folder + "/.metadata";
  fs::copy(kGolden + "/dcp", folder);
  std::string text = Spoiler::read(file);
  for (size_t at = 0; (at = text.find("step", at)) != std::string::npos;) text.replace(at, 4, "stop");
  Spoiler::write(file, text);
  const std::string notes = format_->open(folder, "")->facts().find("notes")->to_json();
  EXPECT_NE(notes.find("nothing here knows them: stop"), std::string::npos) << notes;
}

TEST_F(DcpTest, accelerate_s_two_folders_are_one_checkpoint) {
  const std::string folder = kGolden + "/accelerate";
  EXPECT_NE(format_->recognizes(folder).find("accelerate"), std::string::npos);
  const auto checkpoint = format_->open(folder, "");
  EXPECT_EQ(checkpoint->facts().find("step")->as_int(), 3) << "of trainer_state.json";
  EXPECT_EQ(checkpoint->facts().find("updates")->as_int(), 2);
  const auto expected = SafetensorsFile::open(kGolden + "/zero0.safetensors");
  const NamedTensors found = read_tensors(*checkpoint);
  EXPECT_EQ(found.size(), expected.names().size());
  for (const auto& [name, tensor] : found) EXPECT_TRUE(at::equal(tensor, expected.tensor(name))) << name;
}

TEST_F(DcpTest, of_several_models_of_accelerate_s_none_is_chosen) {
  const std::string folder = temporary_.path() + "/several";
  fs::copy(kGolden + "/accelerate", folder, fs::copy_options::recursive);
  for (const char* second : {"pytorch_model_fsdp_1", "optimizer_1"}) {
    fs::create_directories(folder + "/" + second);
    EXPECT_NE(format_->recognizes(folder), "");
    const std::string said = refusal(folder);
    EXPECT_NE(said.find(folder + "/" + second), std::string::npos) << said;
    fs::remove_all(folder + "/" + second);
  }
  fs::create_directories(folder + "/optimizer_states");  // no count: somebody's own
  EXPECT_EQ(format_->open(folder, "")->facts().find("updates")->as_int(), 2);
}

TEST_F(DcpTest, torchtitan_s_flat_keys_are_weights_and_moments_under_meta_s_names) {
  const auto checkpoint = format_->open(kGolden + "/titan", "");
  EXPECT_EQ(checkpoint->facts().find("naming")->as_string(), "meta");
  EXPECT_EQ(checkpoint->facts().find("step")->as_int(), 5);
  EXPECT_EQ(checkpoint->facts().find("updates")->as_int(), 5);
  const NamedTensors found = read_tensors(*checkpoint);
  EXPECT_EQ(found.size(), 3u * (3 + 2 * 9));
  EXPECT_TRUE(found.contains("model/layers.1.attention.wq.weight"));
  EXPECT_TRUE(found.contains("optimizer/layers.1.attention.wq.weight.exp_avg_sq"));
}

TEST_F(DcpTest, what_we_write_comes_back) {
  const at::Tensor a = at::randn({7, 3}), b = at::randn({5});
  Value facts = Value::object();
  facts.set("step", 12), facts.set("updates", 11);
  const NamedTensors wanted{{"model/h.0.a", a},
                            {"model/b", b.to(at::kBFloat16)},
                            {"optimizer/h.0.a.exp_avg", a * 2},
                            {"optimizer/h.0.a.exp_avg_sq", a * a}};
  format_->write(temporary_.path(), TensorCheckpoint(wanted, facts));
  const auto checkpoint = format_->open(temporary_.path(), "");
  EXPECT_EQ(checkpoint->facts().find("updates")->as_int(), 11);
  const NamedTensors found = read_tensors(*checkpoint);
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) EXPECT_TRUE(at::equal(found.at(name), tensor.to(at::kFloat))) << name;
}

// What torch.distributed.checkpoint.load asks for when it loads into a model and an optimizer of PyTorch.
TEST_F(DcpTest, groups_of_parameters_and_tied_weights_are_written_under_pytorch_s_keys) {
  const at::Tensor a = at::randn({7, 3}), b = at::randn({5});
  int folders = 0;
  const auto written = [&](const char* options) {
    Value facts = Value::object(), tied = Value::object();
    tied.set("lm_head.weight", "h.a");
    facts.set("step", 12), facts.set("updates", 11), facts.set("lr", 0.25), facts.set("optimizer_type", "adamw");
    facts.set("optimizer_options", parse_json(options, "test")), facts.set("tied", tied);
    const std::string folder = concat(temporary_.path(), "/", ++folders);
    fs::create_directories(folder);
    format_->write(folder, TensorCheckpoint({{"model/h.a", a}, {"model/b", b}, {"optimizer/h.a.exp_avg", a}}, facts));
    return folder;
  };
  const std::string folder = written(R"({"betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "decay": "all"})");
  EXPECT_TRUE(at::equal(read_tensors(*format_->open(folder, "")).at("model/lm_head.weight"), a));
  std::map<std::string, std::shared_ptr<const TorchFile>> plain;
  const DcpFolder opened(folder);
  opened.each_item([](const std::string&) { return true; },
                   [&](const DcpFolder::Item& item) { plain.emplace(item.name, item.file); });
  const auto number = [&](const std::string& key) { return plain.at(key)->number(plain.at(key)->root(), key); };
  EXPECT_EQ(number("optimizer.param_groups.0.lr"), 0.25);
  EXPECT_EQ(number("optimizer.param_groups.0.weight_decay"), 0.1);
  EXPECT_EQ(opened.path("optimizer.param_groups.0.lr"),
            (std::vector<std::string>{"optimizer", "param_groups", "0", "lr"}));
  const TorchFile& params = *plain.at("optimizer.param_groups.0.params");
  EXPECT_EQ(params.tree().list(params.root(), "params").size(), 2u);
  for (const char* key : {"betas", "eps", "amsgrad", "foreach", "maximize", "capturable", "differentiable", "fused"})
    EXPECT_TRUE(plain.contains(concat("optimizer.param_groups.0.", key))) << key;
  EXPECT_FALSE(plain.contains("optimizer.param_groups.1.lr"));
  plain.clear();
  const DcpFolder matrices(written(R"({"weight_decay": 0.1, "decay": "matrices"})"));
  matrices.each_item([](const std::string&) { return true; },
                     [&](const DcpFolder::Item& item) { plain.emplace(item.name, item.file); });
  EXPECT_EQ(number("optimizer.param_groups.0.weight_decay"), 0.1);
  EXPECT_EQ(number("optimizer.param_groups.1.weight_decay"), 0);
  const TorchFile& others = *plain.at("optimizer.param_groups.1.params");
  EXPECT_EQ(others.tree().list(others.root(), "params").at(0)->text, "b");
}

// Every element of a chunk of any tensor stands where it should.
TEST_F(DcpTest, chunks_of_any_dimensions_become_boxes) {
  std::mt19937 random(7);
  const auto pick = [&](int64_t below) { return static_cast<int64_t>(random() % static_cast<uint64_t>(below)); };
  for (int i = 0; i < 400; ++i) {
    std::vector<int64_t> shape, offsets, sizes;
    for (int64_t dim = 1 + pick(4); dim > 0; --dim) {
      shape.push_back(1 + pick(4));
      offsets.push_back(pick(shape.back()));
      sizes.push_back(1 + pick(shape.back() - offsets.back()));
      if (pick(3) == 0) offsets.back() = 0, sizes.back() = shape.back();
    }
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    const at::Tensor whole = at::arange(count).view(shape);
    at::Tensor part = whole;
    for (size_t d = 0; d < shape.size(); ++d) part = part.narrow(static_cast<int64_t>(d), offsets[d], sizes[d]);
    at::Tensor made = at::full_like(whole, -1), wanted = made.clone(), view = wanted;
    for (size_t d = 0; d < shape.size(); ++d) view = view.narrow(static_cast<int64_t>(d), offsets[d], sizes[d]);
    view.copy_(part);
    const at::Tensor flat = part.contiguous().view({-1}), matrix = as_matrix(made);
    for (const ChunkBox& one : boxes_of_chunk(shape, offsets, sizes))
      matrix.narrow(0, one.box.row, one.box.rows)
          .narrow(1, one.box.column, one.box.columns)
          .copy_(flat.narrow(0, one.first, one.box.rows * one.box.columns).view({one.box.rows, one.box.columns}));
    ASSERT_TRUE(at::equal(made, wanted)) << "shape " << at::IntArrayRef(shape) << " offsets "
                                         << at::IntArrayRef(offsets) << " sizes " << at::IntArrayRef(sizes);
  }
}

TEST_F(DcpTest, keys_of_state_dicts_become_names) {
  using Path = std::vector<std::string>;
  EXPECT_EQ(dcp::name_of_path({"model", "wte.weight"}), "model/wte.weight");
  EXPECT_EQ(dcp::name_of_path({"app", "model", "wte.weight"}), "model/wte.weight");
  EXPECT_EQ(dcp::name_of_path({"model.layers.0.weight"}), "model/model.layers.0.weight");
  EXPECT_EQ(dcp::name_of_path({"optimizer", "state", "wte.weight", "exp_avg"}), "optimizer/wte.weight.exp_avg");
  EXPECT_EQ(dcp::name_of_path({"optimizer", "state", "wte.weight", "step"}), "");
  EXPECT_EQ(dcp::name_of_path(Path{"step"}), "");
  EXPECT_EQ(dcp::name_of_path({"optimizer", "state.layers.0.wq.weight.exp_avg"}),
            "optimizer/layers.0.wq.weight.exp_avg");
  EXPECT_EQ(dcp::name_of_path({"optimizer", "state.layers.0.wq.weight.step"}), "");
  EXPECT_EQ(dcp::name_of_path({"optimizer", "param_groups.layers.0.wq.weight.lr"}), "");
  EXPECT_EQ(dcp::name_of_path({"train_state", "step"}), "");
  EXPECT_EQ(dcp::name_of_path({"model", "_fsdp_wrapped_module.h.0._orig_mod.a"}), "model/h.0.a");
}

// Each word of the table is made another one in a path that has it.
TEST_F(DcpTest, every_word_does_what_the_table_says) {
  using namespace dcp;
  using Path = std::vector<std::string>;
  const auto path_with = [](const KeyRow& row, const std::string& word) {
    const std::string of = row.of, names = row.names;
    if (of == kInName) return Path{"model", "h.0." + word + ".a"};
    if (of == kLastWord) return Path{"app", word};
    if (names == "train_state") return Path{word, "step"};
    if (names == "param_groups") return Path{"optimizer", word, "0", "lr"};
    if (names == "state") return Path{"optimizer", word, "h.a", "exp_avg"};
    return is_of_optimizer({spellings(row.names).front()}) ? Path{word, "state", "h.a", "exp_avg"} : Path{word, "h.a"};
  };
  const auto outcome = [](const Path& path) {
    return concat(name_of_path(path), " ", is_step(path), " ", has_no_effect(path));
  };
  for (const KeyRow& row : keys())
    for (const std::string& word : spellings(row.names)) {
      const Path path = path_with(row, word);
      EXPECT_NE(outcome(path), outcome(path_with(row, "~" + word.substr(1)))) << word;
      EXPECT_EQ(has_no_effect(path), row.use == KeyUse::no_effect) << word;
    }
  std::vector<std::string> rows;
  for (const KeyRow& row : keys()) rows.push_back(readme_row(row));
  EXPECT_EQ(rows_missing_in(DRIVETRAIN_SOURCE_DIR "/plugins/checkpoint_format/dcp/README.md", rows), "");
}

TEST_F(DcpTest, a_name_that_leaves_the_folder_is_refused) {
  const std::string folder = temporary_.path() + "/dcp";
  fs::copy(kGolden + "/dcp", folder);
  std::ifstream file(folder + "/.metadata", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string name = "__0_0.distcp", other = "../../../etc";
  ASSERT_EQ(name.size(), other.size());
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name)) text.replace(at, name.size(), other);
  std::ofstream(folder + "/.metadata", std::ios::binary) << text;
  EXPECT_NE(refusal(folder).find("../../../etc"), std::string::npos) << refusal(folder);
  EXPECT_NE(refusal(folder).find("name of a file in this folder"), std::string::npos) << refusal(folder);
}

TEST_F(DcpTest, a_file_that_is_missing_or_cut_is_told) {
  const std::string folder = temporary_.path() + "/dcp";
  fs::copy(kGolden + "/dcp", folder);
  fs::resize_file(folder + "/__0_0.distcp", 20000);
  EXPECT_NE(refusal(folder).find("__0_0.distcp has 20000"), std::string::npos) << refusal(folder);
  fs::remove(folder + "/__0_0.distcp");
  EXPECT_NE(refusal(folder).find("__0_0.distcp"), std::string::npos) << refusal(folder);
}

// The description has no checksum.
TEST_F(DcpTest, spoilt_descriptions_are_an_error_and_never_more) {
  const std::string folder = temporary_.path() + "/dcp", file = folder + "/.metadata";
  fs::copy(kGolden + "/dcp", folder);
  const std::string whole = Spoiler::read(file);
  Spoiler spoiler(12);
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string spoilt = whole;
    spoiler.change(spoilt, 0, spoilt.size());
    Spoiler::write(file, spoilt);
    try {
      read_tensors(*format_->open(folder, ""));
    } catch (const Error& e) {
      ++refused;
      EXPECT_EQ(e.code(), ErrorCode::checkpoint) << e.what();
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace drivetrain::test
