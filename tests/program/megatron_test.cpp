// Weights of Megatron-LM's checkpoints, as a user meets them: converted to the bits of a Hugging Face folder, taken as
// initial weights, refused where they do not fit.
#include <ATen/ops/equal.h>

#include <drivetrain/safetensors.h>

#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

const std::string kGolden = std::string(DRIVETRAIN_GOLDEN_DIR) + "/megatron_checkpoints";

struct MegatronCheckpoints : ProgramTest {
  MegatronCheckpoints() {
    for (const char* const model : {"gpt2", "llama"})
      write(concat(model, ".json"),
            concat(R"({"model": {"type": "gpt", "params": {"from": ")", kGolden, "/", model, R"("}}})"));
    // The llama again, for a folder that does not say its sizes.
    write("sizes.json", R"({
  "train_steps": 2, "train_batch_size": 2, "threads": 1, "checkpoint_policy": false,
  "model": {"type": "gpt", "params": {"num_layers": 4, "hidden_size": 16, "num_attention_heads": 4,
            "num_query_groups": 2, "ffn_hidden_size": 24, "vocab_size": 29, "max_position_embeddings": 12,
            "normalization": "rmsnorm", "activation": "swiglu", "position_embedding_type": "rope", "add_bias": false,
            "untie_embeddings_and_output_weights": true}},
  "dataset": {"type": "synthetic", "params": {"seq_length": 8}},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}
})");
  }
  Ran start(const std::string& from, const std::string& output, const std::string& more = "") const {
    return run("train sizes.json --set model.params.from=" + from + " --set output_dir=" + output + " " + more);
  }
};

TEST_F(MegatronCheckpoints, every_form_becomes_the_hugging_face_folder_to_the_bit) {
  for (const std::string name :
       {"ranks_gpt2", "ranks_old_gpt2", "ranks_llama", "dist_stacked_llama", "dist_layers_llama"}) {
    SCOPED_TRACE(name);
    const std::string model = name.substr(name.rfind('_') + 1);
    const Ran ran =
        run(concat("checkpoint convert ", kGolden, "/", name, " ", path(name), " --to hf --config ", model, ".json"));
    ASSERT_EQ(ran.code, 0) << ran.output;
    expect_says(ran.output, {"Megatron-LM", "optimizer's state", "written as hf"});
    const auto found = SafetensorsFile::open(path(name) + "/model.safetensors");
    const auto wanted = SafetensorsFile::open(kGolden + "/" + model + "/model.safetensors");
    EXPECT_EQ(found.names(), wanted.names());
    for (const std::string& tensor : wanted.names())
      EXPECT_TRUE(at::equal(found.tensor(tensor), wanted.tensor(tensor))) << tensor;
  }
}

TEST_F(MegatronCheckpoints, weights_start_a_run) {
  const Ran hf = start(kGolden + "/llama", "hf");
  ASSERT_EQ(hf.code, 0) << hf.output;
  for (const char* const name : {"ranks_llama", "dist_stacked_llama"}) {
    const Ran ran = start(kGolden + "/" + name, name);
    ASSERT_EQ(ran.code, 0) << ran.output;
    expect_says(ran.output, {"weights from", "Megatron-LM"});
    EXPECT_EQ(curve("hf"), curve(name));
    EXPECT_EQ(final_weights("hf"), final_weights(name));
  }
}

TEST_F(MegatronCheckpoints, what_does_not_fit_is_said) {
  const auto refused = [&](const Ran& ran, int code, const std::vector<std::string>& words) {
    EXPECT_EQ(ran.code, code) << ran.output;
    expect_says(ran.output, words);
  };
  const std::string from = kGolden + "/ranks_llama";
  refused(start(from, "x", "--set model.params.num_query_groups=4"), 2,
          {"of another model", "num_query_groups is 2 in the checkpoint, 4 in the model"});
  refused(start(from, "x", "--set model.params.vocab_size=40"), 2, {"word_embeddings", "[32, 16]", "[40, 16] or more"});
  refused(run("checkpoint convert " + from + " " + path("x") + " --to hf"), 2, {"does not tell the sizes"});
  refused(run("checkpoint convert " + from + " " + path("x") + " --to native --config sizes.json"), 6,
          {"no state of optimizer"});
}

TEST_F(MegatronCheckpoints, equal_weights_of_another_model_are_refused_with_what_differs) {
  const auto refused = [&](const Ran& ran, const std::vector<std::string>& words) {
    EXPECT_EQ(ran.code, 2) << ran.output;
    expect_says(ran.output, words);
  };
  for (const std::string from : {"ranks_llama", "dist_stacked_llama", "dist_layers_llama"}) {
    SCOPED_TRACE(from);
    const std::string convert = "checkpoint convert " + kGolden + "/" + from + " " + path("x") + " --to hf --config ";
    refused(run(convert + "gpt2.json"),
            {from, "of another model", "position_embedding_type is \"rope\" in the checkpoint, \"learned_absolute\"",
             "set the model's options"});
    refused(run(convert + "sizes.json --set model.params.activation=gelu"),
            {"activation is \"swiglu\" in the checkpoint, \"gelu\" in the model"});
    refused(run(convert + "sizes.json --set model.params.untie_embeddings_and_output_weights=false"),
            {"untie_embeddings_and_output_weights is true in the checkpoint, false in the model"});
    refused(start(kGolden + "/" + from, "x", "--set save_final=false --set model.params.normalization=layernorm"),
            {"normalization is \"RMSNorm\" in the checkpoint, \"LayerNorm\" in the model"});
  }
  EXPECT_FALSE(std::filesystem::exists(path("x/final")));
}

}  // namespace
}  // namespace drivetrain::test
