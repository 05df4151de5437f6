// Checkpoints of other programs, as a user meets them: converted, gone on from, taken as initial weights, refused.
// The folders are DeepSpeed's and PyTorch's own (tests/golden/data).
#include <ATen/ops/equal.h>

#include <drivetrain/safetensors.h>

#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

const std::string kGolden = std::string(DRIVETRAIN_GOLDEN_DIR) + "/deepspeed_checkpoints";

struct Convert : ProgramTest {
  // The model that the golden folders are of, and a run of it.
  Convert() {
    write("golden.json", R"({
  "train_steps": 4, "train_batch_size": 4, "threads": 1, "output_dir": "run",
  "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 8, "num_attention_heads": 2,
            "vocab_size": 17, "max_position_embeddings": 7}},
  "dataset": {"type": "synthetic", "params": {"seq_length": 6}},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}
})");
  }
  Ran convert(const std::string& from, const std::string& to, const std::string& more) const {
    return run("checkpoint convert " + from + " " + path(to) + " " + more);
  }
  // The weights of a Hugging Face folder are the golden ones.
  void expect_weights(const std::string& folder, const std::string& golden) const {
    const auto found = SafetensorsFile::open(path(folder) + "/model.safetensors");
    const auto wanted = SafetensorsFile::open(kGolden + "/" + golden + ".safetensors");
    EXPECT_EQ(found.names().size(), 16u);
    for (const std::string& name : found.names())
      EXPECT_TRUE(at::equal(found.tensor(name), wanted.tensor("model/" + name))) << name;
  }
};

TEST_F(Convert, a_run_goes_on_from_what_deepspeed_saved) {
  for (const char* golden : {"zero0", "zero2", "zero3"}) {
    const Ran made = convert(kGolden + "/" + golden, "on", "--to native --config golden.json");
    ASSERT_EQ(made.code, 0) << made.output;
    const Ran went = run("train " + path("on/resolved.json"));
    ASSERT_EQ(went.code, 0) << went.output;
    expect_says(went.output, {"goes on from checkpoint step-00000002 with step 3", "step 4/4"});
    EXPECT_EQ(read_metrics(path("on")).size(), 2u);
    std::filesystem::remove_all(path("on"));
  }
}

TEST_F(Convert, a_run_goes_on_from_bfloat16_parameter_groups_and_accelerate_s_folders) {
  for (const char* golden : {"bf16_zero1_fp32", "bf16_zero0", "zero0_groups", "zero3_groups", "accelerate"}) {
    SCOPED_TRACE(golden);
    // Frozen weights have no moments: what DeepSpeed did not train goes into a new run only.
    const bool frozen = std::string(golden).find("zero0_g") == 0 || std::string(golden).find("zero3_g") == 0;
    const Ran made = convert(kGolden + "/" + golden, "on", "--to native --config golden.json");
    ASSERT_EQ(made.code, frozen ? 6 : 0) << made.output;
    if (frozen) {
      expect_says(made.output, {"they were not trained there", "model.params.from"});
      continue;
    }
    const Ran went = run("train " + path("on/resolved.json"));
    ASSERT_EQ(went.code, 0) << went.output;
    expect_says(went.output, {"goes on from checkpoint step-0000000", "step 4/4"});
    std::filesystem::remove_all(path("on"));
  }
}

// Meta's order of rows is another, which no shape tells: wrong weights would be taken without a word.
TEST_F(Convert, torchtitan_s_llama_becomes_a_hugging_face_folder_row_by_row) {
  write("llama.json",
        R"({"model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 16, "num_attention_heads": 4,
    "num_query_groups": 2, "ffn_hidden_size": 24, "vocab_size": 11, "max_position_embeddings": 8, "normalization": "rmsnorm",
    "activation": "swiglu", "position_embedding_type": "rope", "add_bias": false,
    "untie_embeddings_and_output_weights": true}}})");
  const Ran made = convert(kGolden + "/titan", "hf", "--to hf --config llama.json");
  ASSERT_EQ(made.code, 0) << made.output;
  const auto found = SafetensorsFile::open(path("hf") + "/model.safetensors");
  const auto wanted = SafetensorsFile::open(kGolden + "/titan.safetensors");
  EXPECT_EQ(found.names().size(), 3u + 2 * 9);
  for (const std::string& name : found.names())
    EXPECT_TRUE(at::equal(found.tensor(name), wanted.tensor("model/" + name))) << name;
  // Moments move with their weights.
  ASSERT_EQ(convert(kGolden + "/titan", "dcp", "--to dcp --config llama.json").code, 0);
  const Ran gpt2 = convert(kGolden + "/titan", "no", "--to hf --config golden.json");
  EXPECT_EQ(gpt2.code, 2) << gpt2.output;
  expect_says(gpt2.output, {"Meta's names of a Llama", "rmsnorm, rope, swiglu"});
}

TEST_F(Convert, a_folder_of_hugging_face_s_trainer_leads_to_what_deepspeed_saved_in_it) {
  ASSERT_EQ(convert(kGolden + "/zero2", "trainer", "--to hf --config golden.json").code, 0);
  write("trainer/trainer_state.json", R"({"global_step": 2})");
  const Ran weights = convert(path("trainer"), "a", "--to native --config golden.json");
  EXPECT_EQ(weights.code, 6) << "weights alone";
  write("trainer/optimizer.pt", "x");
  expect_says(convert(path("trainer"), "a", "--to native --config golden.json").output, {"optimizer.pt is not read"});
  std::filesystem::copy(kGolden + "/zero2", path("trainer"), std::filesystem::copy_options::recursive);
  const Ran made = convert(path("trainer"), "on", "--to native --config golden.json");
  ASSERT_EQ(made.code, 0) << made.output;
  expect_says(made.output, {"DeepSpeed, ZeRO stage 2", "Trainer's folder"});
  std::filesystem::create_directories(path("runs/checkpoint-2"));
  const Ran above = convert(path("runs"), "x", "--to hf --config golden.json");
  expect_says(above.output, {"it holds checkpoint-2 of Hugging Face's Trainer: give the folder of one"});
}

TEST_F(Convert, what_is_converted_runs_with_the_ranks_that_are_named_and_with_others_where_it_can) {
  const Ran open = convert(kGolden + "/zero2", "on", "--to native --config golden.json");
  expect_says(open.output, {"go on with `drivetrain train "});
  EXPECT_EQ(run("launch -n 2 " + path("on/resolved.json")).code, 0);
  const std::string all = " --set train_micro_batch_size_per_gpu=1 --set gradient_accumulation_steps=2";
  const Ran fixed = convert(kGolden + "/zero2", "two", "--to native --config golden.json" + all);
  expect_says(fixed.output, {"go on with `drivetrain launch -n 2 "});
  EXPECT_EQ(run("launch -n 2 " + path("two/resolved.json")).code, 0);
}

TEST_F(Convert, any_format_becomes_any_other_to_the_bit) {
  const std::string model = "--config golden.json --to ";
  ASSERT_EQ(convert(kGolden + "/zero3", "hf", model + "hf").code, 0);
  expect_weights("hf", "zero3");
  ASSERT_EQ(convert(kGolden + "/zero3", "native", model + "native").code, 0);
  for (const char* format : {"dcp", "deepspeed-universal"}) {
    SCOPED_TRACE(format);
    const std::string folder = format;
    const Ran out = convert(path("native"), folder, concat("--to ", format));  // the checkpoint tells the model
    ASSERT_EQ(out.code, 0) << out.output;
    ASSERT_EQ(convert(path(folder), folder + "-hf", model + "hf").code, 0);
    expect_weights(folder + "-hf", "zero3");
    // With its moments it can be gone on from.
    ASSERT_EQ(convert(path(folder), folder + "-on", model + "native").code, 0);
    ASSERT_EQ(run("train " + path(folder + "-on/resolved.json")).code, 0);
  }
  // All ways round: the same figures.
  ASSERT_EQ(run("train " + path("native/resolved.json")).code, 0);
  EXPECT_EQ(curve("native"), curve("dcp-on"));
  EXPECT_EQ(curve("native"), curve("deepspeed-universal-on"));
}

TEST_F(Convert, a_run_looks_for_its_checkpoint_where_its_config_says) {
  for (const std::string& kept : {std::string("kept"), path("elsewhere")}) {
    SCOPED_TRACE(kept);
    const std::string more = "--to native --config golden.json --set checkpoint_store.folder=" + kept;
    ASSERT_EQ(convert(kGolden + "/zero2", "on", more).code, 0);
    const Ran went = run("train " + path("on/resolved.json"));
    ASSERT_EQ(went.code, 0) << went.output;
    expect_says(went.output, {"goes on from checkpoint step-00000002"});
    ASSERT_EQ(convert(path("on"), "back", "--to hf --tag step-00000002").code, 0) << "by the run's folder";
    expect_weights("back", "zero2");
    std::filesystem::remove_all(path("back"));
    std::filesystem::remove_all(path("on"));
  }
  const Ran mixed = convert(kGolden + "/zero2", "on",
                            "--to native --config golden.json --set checkpoint_store.folder=" + path("elsewhere"));
  EXPECT_EQ(mixed.code, 2);
  expect_says(mixed.output, {"those of another one", "step-0000000"});
  const Ran none = convert(kGolden + "/zero2", "on", "--to native --config golden.json --set checkpoint_store=false");
  EXPECT_EQ(none.code, 2);
  expect_says(none.output, {"checkpoint_store is false"});
  EXPECT_FALSE(std::filesystem::exists(path("on")));
}

TEST_F(Convert, tags_are_found_wherever_they_lie) {
  ASSERT_EQ(convert(kGolden + "/zero2", "native", "--to native --config golden.json").code, 0);
  std::filesystem::copy(path("native/checkpoints"), path("copied"), std::filesystem::copy_options::recursive);
  for (const char* from :
       {"native/checkpoints", "native/checkpoints/step-00000002", "copied", "copied/step-00000002"}) {
    SCOPED_TRACE(from);
    ASSERT_EQ(convert(path(from), "hf", "--to hf").code, 0);
    expect_weights("hf", "zero2");
    std::filesystem::remove_all(path("hf"));
  }
}

TEST_F(Convert, weights_of_any_folder_start_a_run) {
  ASSERT_EQ(convert(kGolden + "/zero2", "hf", "--to hf --config golden.json").code, 0);
  ASSERT_EQ(convert(kGolden + "/zero2", "native", "--to native --config golden.json").code, 0);
  ASSERT_EQ(convert(kGolden + "/zero2", "universal", "--to deepspeed-universal --config golden.json").code, 0);
  const auto start = [&](const std::string& from, const std::string& output) {
    const Ran ran = run("train golden.json --set model.params.from=" + from + " --set output_dir=" + output);
    EXPECT_EQ(ran.code, 0) << ran.output;
    return ran.output;
  };
  start(path("hf"), "a");
  expect_says(start(kGolden + "/zero2", "b"), {"weights from", "DeepSpeed, ZeRO stage 2"});
  start(path("native"), "c");
  start(path("universal"), "d");
  for (const char* other : {"b", "c", "d"}) {
    EXPECT_EQ(curve("a"), curve(other)) << other;
    EXPECT_EQ(final_weights("a"), final_weights(other)) << other;
  }
}

TEST_F(Convert, what_cannot_be_done_is_said) {
  const auto refused = [&](const Ran& ran, int code, const std::vector<std::string>& words) {
    EXPECT_EQ(ran.code, code) << ran.output;
    expect_says(ran.output, words);
  };
  const std::string from = kGolden + "/zero2";
  refused(convert(from, "x", "--to hf"), 2, {"does not tell the sizes", "--config"});
  refused(convert(from, "x", "--to native"), 2, {"--config"});
  refused(convert(from, "x", "--to hf --set model.params.num_layers=1"), 2, {"--set", "--config CONFIG"});
  refused(convert(path("tiny.json"), "x", "--to hf"), 2, {"tiny.json", "is no folder"});
  refused(convert(folder(), "x", "--to hf"), 2,
          {"no known checkpoint", "dcp, deepspeed, deepspeed_universal, megatron"});
  refused(convert(from, "x", "--to hf --config tiny.json"), 6, {"does not fit the model", "wte.weight"});
  refused(convert(kGolden + "/dcp", "x", "--to native --config golden.json"), 6, {"no state of optimizer/adamw"});
  refused(convert(from, "x", "--to hf --config golden.json --tag global_step9"), 2, {"no tag global_step9"});
  refused(convert(from, "x", "--to megatron --config golden.json"), 2, {"megatron", "not written"});
  refused(convert(from, "x", "--to gguf --config golden.json"), 3, {"gguf"});
  EXPECT_FALSE(std::filesystem::exists(path("x")));
  write("taken/file", "x");
  refused(convert(from, "taken", "--to hf --config golden.json"), 2, {"taken", "is there already"});
  refused(run("train golden.json --set model.params.from=" + kGolden + "/zero2 --set model.params.num_layers=2"), 2,
          {"does not fit the model", "h.1."});
  expect_nothing_half_written();
}

}  // namespace
}  // namespace drivetrain::test
