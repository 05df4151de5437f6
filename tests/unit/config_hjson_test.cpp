// Hjson as its page describes it and the package hjson 3.1.0 for Python reads it, and what a config that is no JSON is
// told.
#include "config_files/hjson.h"
#include "config_files/relaxed_json.h"
#include "config_test_support.h"

namespace drivetrain {
namespace {

std::string read_as(const std::string& text) {
  Hjson hjson;
  Problem syntax;
  Problems problems;
  if (!read_hjson(text, "a", hjson, syntax, problems)) return concat(syntax.where.text(), " ", syntax.message);
  return hjson.value.to_json() + (problems.empty() ? "" : " " + problems.text());
}

TEST(Hjson, reads_what_the_page_shows) {
  EXPECT_EQ(read_as("{\n  // one\n  a: 1\n  b: 2.5e1 # two\n  /* three */ c: true\n}"), R"({"a":1,"b":25.0,"c":true})");
  EXPECT_EQ(read_as("{a: [1, 2\n 3]\n b: {c: null},}"), R"({"a":[1,2,3],"b":{"c":null}})");
  EXPECT_EQ(read_as("{'a': 'x \"y\"', \"b\": \"\\u00e9\\n\"}"), "{\"a\":\"x \\\"y\\\"\",\"b\":\"\u00e9\\n\"}");
  EXPECT_EQ(read_as("{a: '''one\ntwo'''}"), R"({"a":"one\ntwo"})");
  EXPECT_EQ(read_as("\xEF\xBB\xBF# no braces\r\na: 1\r\nb: {c: -3}\r\n"), R"({"a":1,"b":{"c":-3}})");
}

// Texts without quotation marks go on to the end of their line; numbers and words end at a mark.
TEST(Hjson, a_bare_text_has_the_whole_line) {
  EXPECT_EQ(read_as("{\n type: AdamW\n lr: 1e-3, n: 5}"), R"({"type":"AdamW","lr":0.001,"n":5})");
  EXPECT_EQ(read_as("{\n type: AdamW, # x\n b: true}"), R"({"type":"AdamW, # x","b":true})");
  EXPECT_EQ(read_as("{\n a: 5 apples\n b: true story\n c: 007x\n}"), R"({"a":"5 apples","b":"true story","c":"007x"})");
}

TEST(Hjson, mistakes_have_their_place) {
  EXPECT_EQ(read_as("{\n a: 1\n"), "a:3:1 the text ends inside an object; its closing } is missing");
  EXPECT_EQ(read_as("{a: 1}}"), "a:1:7 something follows the end of the object");
  EXPECT_EQ(read_as("{a b: 1}"), "a:1:4 a colon is missing behind \"a\"");
  EXPECT_EQ(read_as("{a: }"), "a:1:5 a value is wanted, found }");
  EXPECT_EQ(read_as("{a: \"x}"), "a:1:5 a text without its closing quotation mark");
  EXPECT_HAS(read_as("{a: 1, a: 2}"), "a:1:8  key \"a\" is given twice; the first is at a:1:2");
  EXPECT_HAS(read_as("{a: " + std::string(200, '[')), "nested deeper than 128 levels");
}

class RelaxedConfig : public ConfigFiles {
 protected:
  std::string read(const std::string& text) {
    notes_.clear();
    Problems problems;
    const std::string path = write("a.json", text);
    const std::string told = config_error_of([&] { value_ = read_config_file(path, problems); });
    for (const Problem& note : problems.notes()) notes_ += note.message + "\n";
    return told;
  }
  Value value_;
  std::string notes_;
};

TEST_F(RelaxedConfig, is_taken_with_a_note_where_DeepSpeed_takes_it) {
  EXPECT_EQ(read("{\n  \"a\": 1\n  \"b\": 2\n}\n"), "no error");
  EXPECT_EQ(value_.to_json(), R"({"a":1,"b":2})");
  EXPECT_HAS(notes_, "is read as Hjson");
  EXPECT_EQ(value_.find("b")->key_where.text(), (folder_ / "a.json").string() + ":3:3");
  EXPECT_EQ(read("{\"a\": 1}"), "no error");
  EXPECT_EQ(notes_, "");
}

TEST_F(RelaxedConfig, is_told_for_what_it_is) {
  EXPECT_HAS(read("{\n \"a\": True,\n \"b\": 1\n}"), "True is Python's\n   write true");
  EXPECT_HAS(read("{\n \"a\": SOME_SIZE,\n \"b\": 1\n}"),
             "a.json:2:7  this is a template: SOME_SIZE stands for a value");
  EXPECT_HAS(read("{\"a\": {{ x }}}"), "a.json:1:7  this is a template: {{ x }}");
  EXPECT_HAS(read("{\n \"a\": AdamW,\n \"b\": 1\n}"), "write \"AdamW\",");
  EXPECT_HAS(read("{\"a\": 1}\n---\n{\"a\": 2}"), "a.json:2:1  a second document begins here");
  EXPECT_HAS(read("eyJhIjogMSwgImIiOiAyfQ=="), "a config in base64");
  EXPECT_HAS(read(" \n"), "the file is empty");
  EXPECT_HAS(read("\"a\": 1\n}"), "the outer { is missing");
  EXPECT_HAS(read("{\n \"a\": NaN,\n \"b\": 1\n}"), "numbers must be finite");
  EXPECT_HAS(read("{\"a\": 1, \"a\": tru}"), "not valid JSON");
}

TEST_F(RelaxedConfig, a_capital_word_with_a_comma_may_be_a_mark_and_without_one_it_is_a_text) {
  EXPECT_HAS(read("{\n \"a\": GBSIZE,\n \"b\": 1\n}"), "a.json:2:7  this is a template if GBSIZE stands for a value");
  EXPECT_HAS(read("{\n \"a\": SGD,\n \"b\": 1\n}"), "a text wants quotation marks: \"SGD\",");
  EXPECT_EQ(read("{\n \"a\": SGD\n \"b\": 1\n}"), "no error");
}

// Files as their programs' documentation has them, each with the words that lead from it to a run.
TEST_F(RelaxedConfig, files_of_other_programs_are_told_for_what_they_are) {
  const auto told = [&](const std::string& text, const std::string& what, const std::string& way) {
    const std::string error = read(text);
    EXPECT_HAS(error, "this is " + what);
    EXPECT_HAS(error, way);
    EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
  };
  told(
      "compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  zero_stage: 3\ndistributed_type: DEEPSPEED\n"
      "mixed_precision: fp16\nnum_processes: 4\n",
      "accelerate's configuration", "{\"stage\": 3}, mixed_precision (fp16) as");
  told(
      "compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
      "distributed_type: DEEPSPEED\nnum_processes: 4\n",
      "accelerate's configuration", "drivetrain launch -n 4 run.json --deepspeed ds.json");
  told(
      "{\"compute_environment\": \"LOCAL_MACHINE\", \"num_machines\": 1, \"num_processes\": 2,\n"
      " \"deepspeed_config\": {\"deepspeed_config_file\": \"ds.json\"}}",
      "accelerate's configuration", "drivetrain launch -n 2 run.json --deepspeed ds.json");
  told(
      "### model\nmodel_name_or_path: org/some-model\n\nstage: sft\nfinetuning_type: full\ndeepspeed: z3.json # or "
      "z2\n",
      "a configuration of LLaMA-Factory", "--deepspeed z3.json; the model is");
  told("base_model: org/some-model\ndatasets:\n  - path: p\n    type: alpaca\nsequence_len: 4096\n",
       "a configuration of Axolotl", "a downloaded folder of org/some-model");
  told("[job]\ndump_folder = \"./outputs\"\n\n[training]\nsteps = 10\n", "TOML", "run.json");
  told(
      "# shapes\n{\n  \"pipe-parallel-size\": 1,\n  \"model-parallel-size\": 2,\n  \"fp16\": {\"enabled\": True},\n}\n",
      "a configuration of GPT-NeoX", "\"tensor_parallel\": {\"size\": 2}");
  told("{\"pipe_parallel_size\": 1, \"model_parallel_size\": 2, \"train_iters\": 5}", "a configuration of GPT-NeoX",
       "train_iters is \"train_steps\"");
  told("{\"per_device_train_batch_size\": 4, \"learning_rate\": 1e-5, \"deepspeed\": \"z2.json\"}",
       "a file of TrainingArguments", "--deepspeed z2.json");
  told("--tensor-model-parallel-size 2\n--num-layers 24\n--micro-batch-size 4\n", "a list of arguments of Megatron-LM",
       "micro_batch_size is \"train_micro_batch_size_per_gpu\"");
  told("tensor-model-parallel-size: 2\nglobal-batch-size: 8\n", "a list of arguments of Megatron-LM",
       "global_batch_size");
  told("{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 8}",
       "the config.json of a model", "\"from\": FOLDER");
  told("{\"log_history\": [], \"global_step\": 5}", "the trainer_state.json", "checkpoint convert");
  told("#!/bin/bash\ndeepspeed train.py\n", "a script", "drivetrain launch -n N run.json");
  told("import torch\n", "a script", "drivetrain launch");
  told("trainer:\n  max_steps: 5\n", "YAML", "JSON");
}

TEST_F(RelaxedConfig, nobody_s_file_is_taken_for_another_program_s_by_one_name_or_by_what_it_asks_for) {
  for (const char* text :
       {"{\"train_batch_size\": 8, \"learning_rate\": 1}", "{\"zero_optimization\": {\"stage\": 2}, \"datasets\": []}",
        "{\"model\": {\"type\": \"gpt\"}, \"tensor_model_parallel_size\": 1, \"micro_batch_size\": 1}",
        "train_batch_size: 8\nfp16: {\n  enabled: true\n}\n", "a: [\n 1\n 2\n]\nb:\n{ c: 1 }\n"})
    EXPECT_EQ(read(text), "no error") << text;
}

TEST_F(RelaxedConfig, base64_in_the_place_of_a_path_is_told_too) {
  Problems problems;
  EXPECT_HAS(config_error_of([&] { read_config_file("eyJhIjogMSwgImIiOiAyfQ==", problems); }), "base64 -d");
  EXPECT_HAS(config_error_of([&] { read_config_file("missing_file.json", problems); }), "cannot be opened");
}

}  // namespace
}  // namespace drivetrain
