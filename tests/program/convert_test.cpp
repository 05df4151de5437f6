// Checkpoints of other programs, as a user meets them: converted, gone on from, taken as initial weights, refused.
// The folders are DeepSpeed's and PyTorch's own (tests/golden/data).
#include <ATen/ops/equal.h>

#include <drivetrain/safetensors.h>
#include <drivetrain/value.h>

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
    expect_says(made.output,
                {"which differs from what the run that saved was told", "optimizer.params.lr: 0.01 then, 0.001 now",
                 "weight_decay: 0.1 then", "the rate of the next step: 0.01 then, 0.001 now"});
    const Ran went = run("train " + path("on/resolved.json"));
    ASSERT_EQ(went.code, 0) << went.output;
    expect_says(went.output, {"goes on from checkpoint step-00000002 with step 3", "step 4/4"});
    EXPECT_EQ(read_metrics(path("on")).size(), 2u);
    std::filesystem::remove_all(path("on"));
  }
}

TEST_F(Convert, settings_that_are_the_same_are_not_named) {
  const std::string same = R"( --set gradient_clipping=1 --set 'optimizer={"type": "adamw", "params": {"lr": 1e-2,
      "betas": [0.9, 0.95], "weight_decay": 0.1, "torch_adam": true}}')";
  const Ran made = convert(kGolden + "/zero2", "on", "--to native --config golden.json" + same);
  ASSERT_EQ(made.code, 0) << made.output;
  EXPECT_EQ(made.output.find("differs from what"), std::string::npos) << made.output;
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

TEST_F(Convert, frozen_weights_go_on_frozen_where_a_plugin_does_not_train_them) {
  const std::string plugins = " --plugin-path " DRIVETRAIN_MISDEEDS_DIR,
                    freeze = R"( --set 'strategy={"type": "misdeed", "params": {"deed": "freeze"}}')" + plugins;
  const Ran made = convert(kGolden + "/zero0_groups", "on", "--to native --config golden.json" + freeze);
  ASSERT_EQ(made.code, 0) << made.output;
  const Ran went = run("train " + path("on/resolved.json") + plugins);
  ASSERT_EQ(went.code, 0) << went.output;
  expect_says(went.output, {"goes on from checkpoint step-00000002", "step 4/4"});
  const auto trained = SafetensorsFile::open(path("on/final/model.safetensors"));
  const auto before = SafetensorsFile::open(kGolden + "/zero0_groups.safetensors");
  const auto stayed = [&](const std::string& name) {
    return at::equal(trained.tensor(name), before.tensor("model/" + name));
  };
  EXPECT_TRUE(stayed("transformer.wpe.weight"));
  EXPECT_FALSE(stayed("transformer.wte.weight"));
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

// A Hugging Face folder with a tokenizer and settings of sampling, for runs that begin with it.
struct Export : ProgramTest {
  Export() {
    const std::string data = DRIVETRAIN_GOLDEN_DIR;
    std::filesystem::copy(data + "/llama_tiny/model", path("from"));
    std::filesystem::copy(data + "/tokenizer_files/llama3", path("tokenizer"));
    write("from/tokenizer_config.json", R"({"eos_token": "<|end_of_text|>"})");
    write("from/tokenizer.json", file_bytes(data + "/tokenizer_files/llama3/tokenizer.json"));
    write("from/chat_template.jinja", "{{ messages }}");
    std::filesystem::create_directory(path("from/additional_chat_templates"));
    write("from/additional_chat_templates/tool_use.jinja", "{{ tools }}");
    write("from/README.md", "of the model, not of the tokenizer");
    write("from/generation_config.json",
          R"({"bos_token_id": 0, "eos_token_id": [7, 9], "do_sample": true, "temperature": 0.6})");
    write("continued.json", R"({"train_steps": 1, "threads": 1, "train_batch_size": 1, "checkpoint_policy":
      {"type": "every", "params": {"steps": 1}}, "model": {"type": "gpt", "params": {"from": "from"}},
      "dataset": {"type": "synthetic", "params": {"seq_length": 16}}})");
    write("fresh.json", R"({"train_steps": 1, "threads": 1, "train_batch_size": 1,
      "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2,
        "vocab_size": 600, "max_position_embeddings": 32}},
      "tokenizer": {"type": "bpe", "params": {"folder": "tokenizer"}},
      "dataset": {"type": "synthetic", "params": {"seq_length": 16}}})");
  }
  std::set<std::string> files(const std::string& folder) const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path(folder)))
      names.insert(entry.path().filename().string());
    return names;
  }
  Value json(const std::string& file) const { return read_json_file(path(file)); }
  void trains(const std::string& config, const std::string& output, const std::string& more = "") const {
    const Ran ran = run("train " + config + " --set output_dir=" + path(output) + " " + more);
    EXPECT_EQ(ran.code, 0) << ran.output;
  }
};

TEST_F(Export, a_folder_that_was_trained_on_keeps_what_stood_beside_its_weights) {
  trains("continued.json", "run");
  const Ran ran = run("checkpoint convert " + path("run") + " " + path("converted") + " --to hf");
  ASSERT_EQ(ran.code, 0) << ran.output;
  for (const std::string folder : {"run/final", "converted"}) {
    SCOPED_TRACE(folder);
    EXPECT_EQ(files(folder), (std::set<std::string>{"additional_chat_templates", "chat_template.jinja", "config.json",
                                                    "generation_config.json", "model.safetensors", "tokenizer.json",
                                                    "tokenizer_config.json"}));
    EXPECT_EQ(json(folder + "/generation_config.json"), json("from/generation_config.json"));
    EXPECT_EQ(file_bytes(path(folder + "/additional_chat_templates/tool_use.jinja")), "{{ tools }}");
    EXPECT_EQ(file_bytes(path(folder + "/tokenizer.json")), file_bytes(path("from/tokenizer.json")));
    EXPECT_EQ(json(folder + "/config.json").find("eos_token_id")->as_int(), 0);
  }
}

TEST_F(Export, a_new_model_gets_the_tokens_of_the_run_s_tokenizer_whatever_its_vocabulary) {
  for (const int size : {400, 600}) {
    SCOPED_TRACE(size);
    const std::string run = concat("run", size);
    trains("fresh.json", run, concat("--set model.params.vocab_size=", size));
    EXPECT_TRUE(files(run + "/final").contains("tokenizer.json"));
    EXPECT_TRUE(files(run + "/final").contains("tokenizer_config.json"));
    for (const std::string file : {"/final/config.json", "/final/generation_config.json"}) {
      EXPECT_EQ(json(run + file).find("bos_token_id")->as_int(), 0);
      EXPECT_EQ(json(run + file).find("eos_token_id")->as_int(), 1);
    }
  }
  trains("fresh.json", "none", "--set tokenizer=false --set model.params.vocab_size=256");
  EXPECT_TRUE(json("none/final/config.json").find("eos_token_id")->is_null()) << "nobody said what ends a text";
}

TEST_F(Export, another_tokenizer_than_the_origin_s_brings_its_own_tokens) {
  write("other/tokenizer_config.json", R"({"eos_token": "<|begin_of_text|>"})");
  write("other/tokenizer.json", file_bytes(path("tokenizer/tokenizer.json")));
  const std::string named = R"( --set 'tokenizer={"type": "bpe", "params": {"folder": ")";
  trains("continued.json", "other_run", named + path("other") + R"("}}')");
  const Value generation = json("other_run/final/generation_config.json");
  EXPECT_EQ(generation.find("eos_token_id")->as_int(), 0);
  EXPECT_EQ(generation.find("temperature")->as_double(), 0.6);
  EXPECT_TRUE(generation.find("bos_token_id")->is_null());
  EXPECT_FALSE(files("other_run/final").contains("chat_template.jinja")) << "that of another tokenizer";
  trains("continued.json", "same_run", named + path("from") + R"("}}')");
  EXPECT_EQ(json("same_run/final/generation_config.json"), json("from/generation_config.json"));
}

TEST_F(Export, weights_are_of_the_type_of_the_origin_or_of_save_dtype) {
  const auto dtype = [&](const std::string& folder) {
    const auto file = SafetensorsFile::open(path(folder) + "/model.safetensors");
    std::set<std::string> types;
    for (const std::string& name : file.names()) types.insert(c10::toString(file.dtype(name)));
    EXPECT_EQ(types.size(), 1u);
    const Value config = json(folder + "/config.json");
    EXPECT_EQ(*config.find("dtype"), *config.find("torch_dtype"));
    return *types.begin() + " " + config.find("dtype")->as_string();
  };
  trains("continued.json", "plain");
  EXPECT_EQ(dtype("plain/final"), "Float float32");
  trains("continued.json", "half", "--set save_dtype=float16");
  EXPECT_EQ(dtype("half/final"), "Half float16");
  Value config = json("from/config.json");
  config.set("dtype", "bfloat16");
  write("from/config.json", config.to_json());
  trains("continued.json", "brain");
  EXPECT_EQ(dtype("brain/final"), "BFloat16 bfloat16");
  ASSERT_EQ(run("checkpoint convert " + path("brain") + " " + path("converted") + " --to hf").code, 0);
  EXPECT_EQ(dtype("converted"), "BFloat16 bfloat16");
  EXPECT_EQ(file_bytes(path("converted/model.safetensors")).size(),
            file_bytes(path("brain/final/model.safetensors")).size());
  const auto whole = SafetensorsFile::open(path("plain/final/model.safetensors")),
             rounded = SafetensorsFile::open(path("brain/final/model.safetensors"));
  for (const std::string& name : whole.names())
    EXPECT_TRUE(at::equal(whole.tensor(name).to(at::kBFloat16), rounded.tensor(name))) << name;
  trains("continued.json", "asked", "--set save_dtype=float32");
  EXPECT_EQ(dtype("asked/final"), "Float float32");
  const std::string convert = "checkpoint convert " + path("asked") + " ";
  ASSERT_EQ(run(convert + path("as_asked") + " --to hf").code, 0);
  EXPECT_EQ(dtype("as_asked"), "Float float32");
  ASSERT_EQ(run(convert + path("otherwise") + " --to hf --save-dtype float16").code, 0);
  EXPECT_EQ(dtype("otherwise"), "Half float16");
  expect_says(run(convert + path("x") + " --to dcp --save-dtype float16").output, {"--save-dtype is for --to hf"});
  expect_says(run(convert + path("x") + " --to hf --save-dtype float30").output, {"--save-dtype", "float16"});
  const Ran refused = run("train continued.json --set save_dtype=float30 --set output_dir=x");
  EXPECT_EQ(refused.code, 2);
  expect_says(refused.output, {"save_dtype", "float30", "bfloat16"});
}

TEST_F(Export, what_ends_an_answer_of_a_run_ends_it_in_a_converted_folder_too) {
  write("chat.jsonl", "{\"prompt\": \"a\", \"response\": \"b\"}\n");
  Value config = json("fresh.json");
  config.set("checkpoint_policy", parse_json(R"({"type": "every", "params": {"steps": 1}})", "test"));
  config.set("dataset", parse_json(R"({"type": "instruction", "params": {"files": ["chat.jsonl"], "seq_length": 16,
      "tokenizer": {"type": "bpe", "params": {"folder": "tokenizer"}},
      "template": {"roles": {"user": {}, "assistant": {"suffix": "<|begin_of_text|>"}}}}})",
                                   "test"));
  write("chat.json", config.to_json());
  trains("chat.json", "chat");
  ASSERT_EQ(run("checkpoint convert " + path("chat") + " " + path("converted") + " --to hf").code, 0);
  for (const std::string file : {"/config.json", "/generation_config.json"}) {
    EXPECT_EQ(json("chat/final" + file).find("eos_token_id")->to_json(), "[0,1]") << "the template's, the tokenizer's";
    EXPECT_EQ(json("converted" + file), json("chat/final" + file));
  }
}

TEST_F(Export, a_misspelt_key_of_a_folder_is_named_at_the_start) {
  Value config = json("from/config.json");
  config.erase("rms_norm_eps"), config.set("rms_norm_epss", 1e-5);
  write("from/config.json", config.to_json());
  const Ran ran = run("train continued.json --set output_dir=" + path("run"));
  ASSERT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"\"rms_norm_epss\"", "from/config.json", "\"rms_norm_eps\" meant"});
}

}  // namespace
}  // namespace drivetrain::test
