// checkpoint_format/megatron: folders laid out as Megatron-LM saves them (tests/golden/data), whole, incomplete and
// damaged. That they hold the weights of a Hugging Face folder is shown in tests/program.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <filesystem>
#include <fstream>

#include <drivetrain/checkpoint_format.h>
#include <drivetrain/toolkit/torch_files/torch_writer.h>

#include <drivetrain/testkit/kit/temp_folder.h>

#include "names.h"
#include "support/plugin_under_test.h"
#include "support/spoilt_files.h"
#include "support/tensor_checkpoint.h"

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;
const std::string kGolden = std::string(DRIVETRAIN_GOLDEN_DIR) + "/megatron_checkpoints";
const std::string kRankFile = "/model_optim_rng.pt";

using Members = std::vector<std::pair<TorchValue, TorchValue>>;

struct MegatronTest : ::testing::Test {
  std::string copy(const std::string& name) const {
    const std::string to = temporary_.path() + "/" + name;
    fs::remove_all(to);
    fs::copy(kGolden + "/" + name, to, fs::copy_options::recursive);
    return to;
  }
  void expect_refused(const std::string& folder, const std::vector<std::string>& words,
                      ErrorCode code = ErrorCode::checkpoint, const std::string& tag = "") const {
    try {
      format_->open(folder, tag);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_EQ(e.code(), code) << text;
      for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << "\nin: " << text;
    }
  }
  NamedTensors read(const std::string& folder) const { return read_tensors(*format_->open(folder, "")); }

  const TempFolder temporary_;
  const Host host_;
  const std::unique_ptr<CheckpointFormat> format_ = make_plugin<CheckpointFormat>(host_, "megatron");
};

void expect_equal(const NamedTensors& a, const NamedTensors& b) {
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.count(name)) << name;
    EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  }
}

TEST_F(MegatronTest, one_model_is_read_to_the_same_bits_from_every_form) {
  const NamedTensors gpt2 = read(kGolden + "/ranks_gpt2"), llama = read(kGolden + "/ranks_llama");
  EXPECT_EQ(gpt2.size(), 5u + 4 * 12);
  EXPECT_EQ(llama.size(), 3u + 4 * 6);
  EXPECT_EQ(gpt2.at("model/output_layer.weight").sizes(), at::IntArrayRef({32, 16}));
  EXPECT_TRUE(at::equal(gpt2.at("model/output_layer.weight"), gpt2.at("model/embedding.word_embeddings.weight")));
  expect_equal(gpt2, read(kGolden + "/ranks_old_gpt2"));
  expect_equal(llama, read(kGolden + "/dist_stacked_llama"));
  expect_equal(llama, read(kGolden + "/dist_layers_llama"));
}

TEST_F(MegatronTest, facts_tell_form_step_and_what_stays_behind) {
  for (const char* const name :
       {"ranks_gpt2", "ranks_llama", "ranks_old_gpt2", "dist_stacked_llama", "dist_layers_llama"}) {
    SCOPED_TRACE(name);
    EXPECT_NE(format_->recognizes(kGolden + "/" + name).find("Megatron-LM"), std::string::npos);
    const auto checkpoint = format_->open(kGolden + "/" + name, "");
    EXPECT_EQ(checkpoint->facts().find("naming")->as_string(), "megatron_core");
    EXPECT_EQ(checkpoint->facts().find("step")->as_int(), 40);
    ASSERT_EQ(checkpoint->facts().find("notes")->items().size(), 1u);
    EXPECT_NE(checkpoint->facts().find("notes")->items()[0].as_string().find("optimizer"), std::string::npos);
    EXPECT_TRUE(checkpoint->verify().empty());
  }
  EXPECT_EQ(format_->recognizes(kGolden), "");
  EXPECT_EQ(format_->recognizes(kGolden + "/gpt2"), "");
  EXPECT_FALSE(format_->writes());
}

TEST_F(MegatronTest, the_iteration_is_the_one_that_is_named) {
  const std::string folder = copy("ranks_llama"), tracker = folder + "/latest_checkpointed_iteration.txt";
  fs::copy(folder + "/release", folder + "/iter_0000007", fs::copy_options::recursive);
  EXPECT_EQ(format_->open(folder, "iter_0000007")->facts().find("notes")->items().size(), 1u);
  std::ofstream(tracker) << "7\n";
  const Value notes = *format_->open(folder, "")->facts().find("notes");
  ASSERT_EQ(notes.items().size(), 2u);
  EXPECT_NE(notes.items()[0].as_string().find("iter_0000007, which is read; there is also release"), std::string::npos);
  std::ofstream(tracker) << "8";
  expect_refused(folder, {"iter_0000008", "iter_0000007, release"}, ErrorCode::config);
  expect_refused(folder, {"no tag iter_0000009", "release"}, ErrorCode::config, "iter_0000009");
  fs::remove(tracker);
  expect_refused(folder, {"several tags", "iter_0000007, release"}, ErrorCode::config);
  EXPECT_EQ(format_->open(folder + "/release", "")->facts().find("step")->as_int(), 40);
}

TEST_F(MegatronTest, a_missing_rank_is_told) {
  const std::string folder = copy("ranks_gpt2"), place = folder + "/iter_0000040/";
  fs::remove(place + "mp_rank_01_000" + kRankFile);
  expect_refused(folder, {"tensor rank 1, pipeline stage 0", "is missing", "bring"});
  fs::remove_all(place + "mp_rank_01_000"), fs::remove_all(place + "mp_rank_01_001");
  expect_refused(folder, {"tensor_model_parallel_size 2", "files of 1", "bring"});
  const std::string stage = copy("ranks_old_gpt2");
  fs::remove_all(stage + "/iter_0000040/mp_rank_00_001"), fs::remove_all(stage + "/iter_0000040/mp_rank_01_001");
  expect_refused(stage, {"pipeline_model_parallel_size 2", "files of 1"});
  fs::rename(stage + "/iter_0000040/mp_rank_01_000", stage + "/iter_0000040/mp_rank_00_000_001");
  expect_refused(stage, {"mp_rank_00_000_001", "expert parallelism"});
}

// Two ranks of one layer, of which a test changes something.
struct SmallRanks {
  std::map<std::string, at::Tensor> tensors[2];
  Members options[2], more[2];
  TorchValue version = 3.0;
  int64_t iterations[2] = {5, 5};

  SmallRanks() {
    for (int rank = 0; rank < 2; ++rank) {
      const auto numbers = [&](const char* name, std::vector<int64_t> shape, int first) {
        int64_t count = 1;
        for (const int64_t size : shape) count *= size;
        tensors[rank][name] = at::arange(count, at::kFloat).add(first).view(shape);
      };
      numbers("embedding.word_embeddings.weight", {3, 4}, 1000 * rank);
      numbers("decoder.layers.0.input_layernorm.weight", {4}, 7);
      numbers("decoder.layers.0.self_attention.linear_qkv.weight", {6, 4}, 100 * rank);
      numbers("decoder.layers.0.self_attention.linear_proj.weight", {4, 2}, 200 * rank);
      numbers("decoder.layers.0.mlp.linear_fc1.weight", {6, 4}, 300 * rank);
      numbers("decoder.layers.0.mlp.linear_fc2.weight", {4, 3}, 400 * rank);
    }
  }
  void save(const std::string& folder) const {
    for (int rank = 0; rank < 2; ++rank) {
      Members model, root;
      for (const auto& [name, tensor] : tensors[rank]) model.emplace_back(name, tensor);
      root.emplace_back("args", TorchValue::dict(options[rank]));
      root.emplace_back("checkpoint_version", version);
      root.emplace_back("iteration", iterations[rank]);
      root.emplace_back("model", TorchValue::dict(std::move(model)));
      for (const auto& member : more[rank]) root.push_back(member);
      const std::string place = concat(folder, "/mp_rank_0", rank);
      fs::create_directories(place);
      write_torch_file(place + kRankFile, TorchValue::dict(std::move(root)));
    }
  }
};

TEST_F(MegatronTest, parts_of_tensor_ranks_are_joined_as_each_is_cut) {
  const SmallRanks small;
  small.save(temporary_.path());
  const NamedTensors found = read(temporary_.path());
  const auto at = [&](const char* name, std::vector<int64_t> index) {
    return found.at(concat("model/", name))[index[0]][index[1]].item<float>();
  };
  const char* const fc1 = "decoder.layers.0.mlp.linear_fc1.weight";
  EXPECT_EQ(at("embedding.word_embeddings.weight", {3, 1}), 1001);
  EXPECT_EQ(at("decoder.layers.0.self_attention.linear_qkv.weight", {7, 2}), 106);
  EXPECT_EQ(at("decoder.layers.0.self_attention.linear_proj.weight", {1, 2}), 202);
  EXPECT_EQ(at("decoder.layers.0.mlp.linear_fc2.weight", {3, 5}), 411);
  // Gates of both ranks, then what they gate.
  EXPECT_EQ(at(fc1, {2, 3}), 11);
  EXPECT_EQ(at(fc1, {3, 0}), 300);
  EXPECT_EQ(at(fc1, {6, 0}), 12);
  EXPECT_EQ(at(fc1, {11, 3}), 323);
}

// Experts one after another and grouped by Transformer Engine, each with gate and up of its own; a shared one beside
// them.
TEST_F(MegatronTest, parts_of_experts_are_joined_as_those_of_an_mlp) {
  SmallRanks small;
  const std::string mlp = "decoder.layers.0.mlp.";
  for (auto& tensors : small.tensors) {
    const at::Tensor fc1 = tensors.at(mlp + "linear_fc1.weight"), fc2 = tensors.at(mlp + "linear_fc2.weight");
    tensors.erase(mlp + "linear_fc1.weight"), tensors.erase(mlp + "linear_fc2.weight");
    tensors[mlp + "experts.local_experts.0.linear_fc1.weight"] = fc1;
    tensors[mlp + "experts.local_experts.0.linear_fc2.weight"] = fc2;
    tensors[mlp + "experts.linear_fc1.weight1"] = fc1 + 5000, tensors[mlp + "experts.linear_fc2.weight1"] = fc2 + 5000;
    tensors[mlp + "shared_experts.linear_fc1.weight"] = fc1 + 7000;
    tensors[mlp + "shared_experts.linear_fc2.weight"] = fc2 + 7000;
    tensors[mlp + "router.weight"] = at::arange(8, at::kFloat).view({2, 4});
  }
  small.save(temporary_.path());
  const NamedTensors found = read(temporary_.path());
  for (const auto& [name, more] :
       {std::pair{"experts.local_experts.0.", 0}, {"experts.local_experts.1.", 5000}, {"shared_experts.", 7000}}) {
    const at::Tensor fc1 = found.at(concat("model/", mlp, name, "linear_fc1.weight")),
                     fc2 = found.at(concat("model/", mlp, name, "linear_fc2.weight"));
    EXPECT_EQ(fc1[3][0].item<float>(), 300 + more) << "gates of both ranks, then what they gate";
    EXPECT_EQ(fc1[6][0].item<float>(), 12 + more);
    EXPECT_EQ(fc2[3][5].item<float>(), 411 + more);
  }
  EXPECT_EQ(found.at("model/" + mlp + "router.weight").size(0), 2);
}

TEST_F(MegatronTest, ranks_that_disagree_are_told_with_file_and_tensor) {
  const std::string norm = "decoder.layers.0.input_layernorm.weight",
                    qkv = "decoder.layers.0.self_attention.linear_qkv.weight";
  const auto refused = [&](const std::function<void(SmallRanks&)>& spoil, std::vector<std::string> words) {
    SmallRanks small;
    spoil(small);
    fs::remove_all(temporary_.path() + "/mp_rank_00"), fs::remove_all(temporary_.path() + "/mp_rank_01");
    small.save(temporary_.path());
    words.push_back("\n   ");  // a remedy
    expect_refused(temporary_.path(), words);
  };
  const std::string second = "mp_rank_01/model_optim_rng.pt";
  refused([&](SmallRanks& s) { s.tensors[1][norm] = s.tensors[1][norm] + 1; }, {second, norm, "other values"});
  refused([&](SmallRanks& s) { s.tensors[1][qkv] = s.tensors[1][qkv].narrow(0, 0, 5).clone(); },
          {second, qkv, "[5, 4]", "[6, 4]"});
  refused([&](SmallRanks& s) { s.tensors[1][qkv] = s.tensors[1][qkv].to(at::kHalf); }, {second, qkv, "Half"});
  refused(
      [&](SmallRanks& s) {
        s.tensors[0][qkv] = s.tensors[1][qkv] = at::arange(6, at::kFloat).view({1, 2, 3});
      },
      {qkv, "[1, 2, 3]"});
  refused([&](SmallRanks& s) { s.tensors[1].erase(norm); }, {second, norm, "missing"});
  refused([&](SmallRanks& s) { s.tensors[1]["extra"] = s.tensors[1][norm]; }, {"mp_rank_00", "\"extra\" is missing"});
  refused(
      [&](SmallRanks& s) {
        for (auto& tensors : s.tensors) {
          tensors["decoder.layers.2.input_layernorm.weight"] = tensors[norm];
        }
      },
      {"mp_rank_00", "decoder.layers.1.self_attention.linear_qkv.weight"});
  refused([&](SmallRanks& s) { s.iterations[1] = 6; }, {second, "iteration 6", "iteration 5"});
  refused([&](SmallRanks& s) { s.tensors[0]["module." + norm] = s.tensors[1]["module." + norm] = s.tensors[0][norm]; },
          {"twice", norm});
}

TEST_F(MegatronTest, what_would_mean_something_else_is_refused_by_name) {
  const auto refused = [&](const std::function<void(SmallRanks&)>& spoil, const std::vector<std::string>& words) {
    SmallRanks small;
    spoil(small);
    small.save(temporary_.path());
    expect_refused(temporary_.path(), words);
  };
  for (const double version : {0.0, 1.0, 4.0})
    refused([&](SmallRanks& s) { s.version = version; }, {"checkpoint_version", "2.0 and 3.0"});
  for (const char* const option : {"apply_layernorm_1p", "rotary_interleaved", "multi_latent_attention",
                                   "apply_residual_connection_post_layernorm"})
    refused([&](SmallRanks& s) { s.options[1] = {{option, true}}; }, {"mp_rank_01", option});
  refused([&](SmallRanks& s) { s.options[0] = {{"num_experts", 8}}; }, {"num_experts", "mp_rank_01"});
  refused([&](SmallRanks& s) { s.options[0] = {{"moe_latent_size", 8}}; }, {"moe_latent_size", "a projection"});
  refused([&](SmallRanks& s) { s.options[0] = {{"rotary_percent", 0.5}}; }, {"rotary_percent 0.5"});
  SmallRanks older;
  older.version = 2.0;
  older.options[0] = {{"num_experts", TorchValue()}, {"rotary_percent", 1.0}};
  older.save(temporary_.path());
  EXPECT_EQ(read(temporary_.path()).size(), 6u);
  const std::string zarr = temporary_.path() + "/zarr/iter_0000001";
  fs::create_directories(zarr);
  std::ofstream(zarr + "/metadata.json") << R"({"sharded_backend": "zarr", "sharded_backend_version": 1})";
  EXPECT_EQ(format_->recognizes(temporary_.path() + "/zarr"), "Megatron-LM, form zarr");
  expect_refused(temporary_.path() + "/zarr", {"zarr", "torch_dist"});
}

TEST_F(MegatronTest, a_folder_of_shards_that_lacks_some_is_told) {
  const std::string folder = copy("dist_stacked_llama");
  fs::remove(folder + "/iter_0000040/__0_1.distcp");
  expect_refused(folder, {"__0_1.distcp", "bring"});
}

TEST_F(MegatronTest, spoilt_files_are_an_error_and_never_more) {
  Spoiler spoiler(4);
  int refused = 0;
  const auto expect_error = [&](const std::string& folder) {
    try {
      read(folder);
    } catch (const Error& e) {
      ++refused;
      EXPECT_EQ(e.code(), ErrorCode::checkpoint) << e.what();
    }
  };
  const std::string ranks = copy("ranks_gpt2"), pickle = ranks + "/iter_0000040/mp_rank_01_000" + kRankFile;
  const std::string whole = Spoiler::read(pickle);
  for (int i = 0; i < 100; ++i) {
    std::string spoilt = whole;
    spoiler.change_pickle(spoilt);
    Spoiler::write(pickle, spoilt);
    expect_error(ranks);
  }
  for (const char* const name : {"dist_stacked_llama", "dist_layers_llama"}) {
    const std::string dist = copy(name), file = dist + "/iter_0000040/.metadata", metadata = Spoiler::read(file);
    for (int i = 0; i < 100; ++i) {
      std::string spoilt = metadata;
      spoiler.change(spoilt, 0, spoilt.size());
      Spoiler::write(file, spoilt);
      expect_error(dist);
    }
  }
  EXPECT_GT(refused, 60);
}

TEST(MegatronNames, of_any_age_are_those_of_megatron_core) {
  const auto name = [](const char* theirs) {
    const auto found = megatron::weight_name(theirs);
    return found ? found->full() : "";
  };
  EXPECT_EQ(name("language_model.transformer.layers.12.attention.query_key_value.bias"),
            "decoder.layers.12.self_attention.linear_qkv.bias");
  EXPECT_EQ(name("language_model.encoder.layers.0.input_norm.weight"), "decoder.layers.0.input_layernorm.weight");
  EXPECT_EQ(name("language_model.encoder.final_norm.weight"), "decoder.final_layernorm.weight");
  EXPECT_EQ(name("decoder.layers.mlp.linear_fc1.layer_norm_bias"), "decoder.layers.pre_mlp_layernorm.bias");
  EXPECT_EQ(name("module.decoder.layers.3.mlp.linear_fc2.weight"), "decoder.layers.3.mlp.linear_fc2.weight");
  const char* const expert = "decoder.layers.3.mlp.experts.local_experts.12.linear_fc1.weight";
  for (const char* const theirs : {"decoder.layers.3.mlp.experts.experts.12.linear_fc1.weight",
                                   "decoder.layers.3.mlp.experts.linear_fc1.weight12", expert})
    EXPECT_EQ(name(theirs), expert);
  EXPECT_EQ(name("decoder.layers.mlp.experts.experts.linear_fc1.weight"),
            "decoder.layers.mlp.experts.experts.linear_fc1.weight");
  for (const char* const none : {"optimizer.state.exp_avg.output_layer.weight", "output_layer._extra_state",
                                 "language_model.rotary_pos_emb.inv_freq"})
    EXPECT_EQ(name(none), "") << none;
}

}  // namespace
}  // namespace drivetrain::test
