// Configs that say something wrong: found before anything is written, with the place and the way out.
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

class BadConfig : public ProgramTest {};

TEST_F(BadConfig, an_unknown_key_is_named_with_its_place_and_the_nearest_name) {
  tiny_with("train_batch_size", "train_batch_sise");
  expect_train_refused("", 2, {"tiny.json:4:3", "train_batch_sise", "did you mean \"train_batch_size\"?"});
}

TEST_F(BadConfig, an_unknown_option_of_a_plugin_is_named_with_plugin_and_nearest_name) {
  tiny_with("hidden_size", "hidden_siz");
  expect_train_refused("", 2,
                       {"tiny.json:5:56", "model.params.hidden_siz", "model/gpt", "did you mean \"hidden_size\"?"});
}

TEST_F(BadConfig, a_duplicate_key_names_both_places) {
  tiny_with("\"threads\": 1", "\"train_steps\": 6");
  expect_train_refused("", 2, {"tiny.json:3:3", "\"train_steps\" is given twice", "tiny.json:2:3", "remove one"});
}

TEST_F(BadConfig, a_wrong_type_says_what_was_expected_and_what_was_found) {
  tiny_with("5,", "\"five\",");
  expect_train_refused("", 2, {"tiny.json:2:18", "train_steps", "expected integer", "found string \"five\""});
}

TEST_F(BadConfig, a_value_out_of_range_says_the_bound) {
  tiny_with("\"seq_length\": 8", "\"seq_length\": 0");
  expect_train_refused("", 2, {"tiny.json:7:61", "dataset.params.seq_length is 0", "at least 1"});
}

TEST_F(BadConfig, all_errors_of_a_file_come_at_once_in_the_order_of_the_file) {
  write("tiny.json", R"({
  "train_steps": "ten",
  "train_batch_sise": 4,
  "seed": 1,
  "seed": 2,
  "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_siz": 16}},
  "dataset": {"type": "synthetic", "params": {"seq_length": 0}},
  "optimizer": {"type": "AdamV", "params": {}},
  "device": "tpu"
})");
  expect_train_refused("--set seed=x", 2,
                       {"tiny.json:2:18", "tiny.json:3:3", "tiny.json:5:3", "tiny.json:6:56", "tiny.json:7:61",
                        "tiny.json:8:25", "optimizer/adamv", "tiny.json:9:13", "--set #1"});
}

TEST_F(BadConfig, broken_json_is_shown_where_it_breaks) {
  tiny_with("\"threads\": 1,", "\"threads\": 1 \"seed\": 4,");  // a text in Hjson
  expect_train_refused("", 2, {"tiny.json:3:14", "comma", "\"seed\""});
}

TEST_F(BadConfig, contradictory_batch_sizes_show_the_product_and_legal_numbers) {
  expect_train_refused("--set train_micro_batch_size_per_gpu=3 --set gradient_accumulation_steps=3", 2,
                       {"tiny.json:4:3", "contradict each other", "train_batch_size is 4", "= 9", "legal", "9"});
  expect_train_refused("--set train_micro_batch_size_per_gpu=3", 2,
                       {"tiny.json:4:3", "which is not a whole number", "legal", "3 or 6", "1, 2, 4"});
}

TEST_F(BadConfig, a_batch_that_cannot_be_shared_by_the_ranks_is_refused_on_all_of_them) {
  expect_refused("launch -n 3 " + path("tiny.json"), 2,
                 {"train_batch_size 4", "4 / 3 data-parallel ranks", "legal: train_batch_size 3 or 6",
                  "failed first: exit 2 (usage or configuration)"});
}

TEST_F(BadConfig, a_missing_train_steps_is_asked_for) {
  tiny_with("\"train_steps\": 5,", "");
  expect_train_refused("", 2, {"tiny.json:1:1", "train_steps is missing", "optimizer steps"});
}

TEST_F(BadConfig, heads_that_do_not_divide_the_width_are_refused_with_both_numbers) {
  expect_train_refused("--set model.num_attention_heads=3", 2,
                       {"tiny.json:5", "num_attention_heads 3 does not divide hidden_size 16", "Change one of them"});
  expect_train_refused("--set model.num_query_groups=3 --set model.num_attention_heads=4", 2,
                       {"num_query_groups 3 does not divide num_attention_heads 4"});
}

TEST_F(BadConfig, a_sequence_longer_than_the_model_is_refused_with_both_numbers) {
  expect_train_refused("--set dataset.seq_length=32", 2,
                       {"tiny.json:7:14", "32 tokens are longer", "max_position_embeddings 16", "Set dataset.params"});
}

TEST_F(BadConfig, dropout_that_flash_attention_cannot_do_is_refused_with_the_way_out) {
  expect_train_refused("--set model.attention_dropout=0.1 --set attention=flash", 2,
                       {"--set #2", "attention/flash", "attention_dropout 0.1 is not supported", "attention/standard"});
}

TEST_F(BadConfig, a_precision_that_contradicts_itself_is_refused) {
  expect_train_refused("--set fp16.enabled=true --set bf16.enabled=true", 2,
                       {"bf16 and fp16", "both choose the precision", "keep one of them"});
  expect_train_refused("--set 'fp16={\"enabled\": true, \"loss_scale\": -1, \"min_loss_scale\": 0, \"hysteresis\": 0}'",
                       2, {"fp16.loss_scale is -1", "fp16.hysteresis is 0", "fp16.min_loss_scale is 0", "at least 1"});
  expect_train_refused("--set fp16.enabled=true --set fp16.loss_scale=true", 2,
                       {"--set #2", "expected number", "boolean"});
  expect_train_refused(
      "--set bf16.enabled=true --set data_types.param_dtype=fp16", 2,
      {"--set #2", "parameters are bfloat16, the type of precision/bf16", "remove it", "\"bf16\", \"fp16\""});
  expect_train_refused("--set data_types.grad_accum_dtype=bf16", 2,
                       {"parameters are float32, for no precision is chosen"});
}

TEST_F(BadConfig, an_order_of_preference_falls_back_with_a_warning_and_resolved_json_shows_the_choice) {
  const Ran ran = train("--set model.attention_dropout=0.1 --set 'attention=[\"flash\",\"standard\"]'");
  ASSERT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"warning: attention/flash is not used: attention_dropout 0.1"});
  expect_says(file_bytes(path("run/log.txt")), {"warning: attention/flash is not used"});
  const Value resolved = read_json_file(path("run/resolved.json"));
  EXPECT_EQ(resolved.find("attention")->find("type")->as_string(), "standard");
  EXPECT_EQ(resolved.find("_resolved")->find("plugins")->find("attention/flash"), nullptr);
}

TEST_F(BadConfig, an_output_folder_that_holds_a_run_is_left_as_it_is) {
  ASSERT_EQ(train().code, 0);
  const std::string metrics = file_bytes(path("run/metrics.jsonl"));
  expect_train_refused("", 2, {path("run"), "holds a run already", "--set output_dir"});
  expect_refused("launch -n 2 " + path("tiny.json"), 2,
                 {"holds a run already", "--set output_dir", "rank 0 failed first: exit 2"});
  EXPECT_EQ(file_bytes(path("run/metrics.jsonl")), metrics);
}

TEST_F(BadConfig, set_errors_name_the_number_of_the_set) {
  expect_train_refused("--set seed=1 --set seed", 2, {"--set #2", "`seed` has no '='", "KEY=VALUE"});
  expect_train_refused("--set seed=1 --set seed=x", 2, {"--set #2", "expected integer", "string \"x\""});
  expect_train_refused("--set a..b=3", 2, {"--set #1", "empty key", "a.b.c=VALUE"});
  expect_train_refused("--set train_steps.x=3", 2, {"--set #1", "train_steps", "tiny.json:2:18", "has no keys"});
  expect_train_refused("--set train_stepz=3", 2, {"--set #1", "did you mean \"train_steps\"?"});
}

TEST_F(BadConfig, a_mistyped_choice_name_or_switch_gets_the_nearest) {
  expect_train_refused("--set attention=flsh", 3, {"attention/flsh", "did you mean \"flash\"?"});
  expect_train_refused("--set 'attention=[\"flash\",\"standar\"]'", 3,
                       {"attention[1]: no plugin attention/standar", "did you mean \"standard\"?"});
  expect_train_refused("--set model.activation=gelu_tahn", 2,
                       {"model.params.activation", "did you mean \"gelu_tanh\"?"});
  expect_train_refused("--set device=cqu", 2, {"--set #1", "did you mean \"cpu\"?"});
  expect_train_refused("--set bf16.enabled=flase", 2, {"bf16.enabled", "write false, without quotation marks"});
  expect_train_refused("--set lr=1", 2, {"--set #1", "optimizer/adamw: move it into \"optimizer.params\""});
  expect_train_refused("--set optimizer.gradient_clipping=1", 2, {"--set #1", "stands at the top level"});
}

TEST_F(BadConfig, true_is_a_section_with_its_defaults) {
  const Ran fused = run("config check " + path("tiny.json") + " --set fused_block=true");
  EXPECT_EQ(fused.code, 0) << fused.output;
  expect_says(fused.output, {"strategy/fused_block"});
  const Ran half = run("config check " + path("tiny.json") + " --set bf16=true --set monitors=true");
  EXPECT_EQ(half.code, 0) << half.output;
  expect_says(half.output, {"precision/bf16"});
  expect_refused("config check " + write("nul.json", R"({"output_dir": "a\u0000b", "model": "gpt"})"), 2,
                 {"nul.json:1:16", "output_dir holds the character"});
  // There always is a schedule: true would be a run without a pipeline, and nobody would say so.
  expect_refused("config check " + path("tiny.json") + " --set pipeline=true", 2,
                 {"pipeline: true does not say which schedule", "gpipe"});
}

TEST_F(BadConfig, what_cannot_be_written_in_the_end_is_refused_by_every_command_and_trains_without_it) {
  const std::string grouped = " --set model.num_attention_heads=4 --set model.num_query_groups=2";
  for (const std::string& command : {"config check " + path("tiny.json"), "train " + path("tiny.json"),
                                     "train --plan " + path("tiny.json"), "launch -n 2 " + path("tiny.json")})
    expect_refused(command + grouped, 2,
                   {"no Hugging Face family can hold this model", "num_query_groups 2", "\"save_final\" to false"});
  const Ran check = run("config check " + path("tiny.json") + grouped + " --set save_final=false");
  EXPECT_EQ(check.code, 0) << check.output;
  const Ran ran = train(grouped + " --set save_final=false");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_FALSE(std::filesystem::exists(path("run/final")));
  EXPECT_EQ(read_metrics(path("run")).size(), 5u);
}

TEST_F(BadConfig, sizes_that_no_host_has_are_refused_before_memory_is_taken) {
  const std::string limited = "ulimit -v 8000000; " + program() + " train " + path("tiny.json");
  const auto refused = [&](const std::string& set, const std::vector<std::string>& parts) {
    const Ran ran = run_shell("cd " + folder() + "; " + limited + " " + set);
    EXPECT_EQ(ran.code, 2) << ran.output;
    expect_says(ran.output, parts);
  };
  refused("--set model.num_layers=100000000", {"num_layers is 100000000", "1 to 10000"});
  refused("--set model.hidden_size=4294967296", {"hidden_size is 4294967296", "1 to 2147483647"});
  refused("--set threads=4096", {"threads is 4096", "0 to 1024"});
  refused("--set threads=1024", {"threads is 1024", "this host has", "at most"});
  expect_train_refused("--set model.hidden_size=1000000 --set model.num_layers=9", 4,
                       {"need ", "GB; this host has ", "GB in all"});
  EXPECT_EQ(files(), std::set<std::string>{"tiny.json"});
}

TEST_F(BadConfig, a_terminal_gets_no_control_characters_from_names) {
  write("tiny.json", "{\"train_steps\": 1, \"a\\u001b[2J\\nb\": 1, \"model\": {\"fr\\u202eom\": 1}}");
  const Ran ran = train("--set 'x\x1b[1my=1' --set 'attention=\x9b\r\x08'");
  EXPECT_EQ(ran.output.find_first_of("\x1b\r\x08\x9b"), std::string::npos) << ran.output;
  expect_says(ran.output, {"a\\x1b[2J\\x0ab", "fr\\u202eom"});
  for (const char* command :
       {"tr\x1b[2Jain", "train --s\x1b[2Jet", "inspect 'mon\x1b[2Jitor'", "config ch\x1b[2Jeck x"}) {
    const Ran other = run(command);
    EXPECT_EQ(other.code, 2) << other.output;
    EXPECT_EQ(other.output.find('\x1b'), std::string::npos) << other.output;
  }
}

TEST_F(BadConfig, config_check_says_the_same_without_training) {
  const Ran good = run("config check " + path("tiny.json"));
  EXPECT_EQ(good.code, 0) << good.output;
  expect_says(good.output, {"tiny.json: no problems found", "parameters, 1 rank", "plugins: "});
  expect_says(run("config check " + path("tiny.json") + " -n 2").output, {"2 ranks", "batch 4 = 2 x 1"});
  expect_refused("config check " + path("tiny.json") + " -n 3", 2, {"4 / 3 data-parallel ranks"});
  expect_refused("config check " + path("tiny.json") + " --set optimizer.lr=fast", 2,
                 {"--set #1", "optimizer.params.lr", "expected number"});
  EXPECT_EQ(files(), std::set<std::string>{"tiny.json"});
}

}  // namespace
}  // namespace drivetrain::test
