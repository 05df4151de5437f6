// Whether steps of a run may be recorded: what is in the way is named.
#include <gtest/gtest.h>

#include <drivetrain/testkit/kit/host.h>

#include "plan/prepare_run.h"
#include "plugin_calls/plugin_call.h"
#include "step/capture.h"
#include "support/train_threads.h"

namespace drivetrain {
namespace {

CaptureFacts able() {
  CaptureFacts facts;
  facts.device = "cuda";
  facts.acting = facts.capturables = {"model/m", "attention/a"};
  return facts;
}

std::string problem_of(CaptureFacts facts) {
  facts.wanted = Capture::on;
  Problems problems;
  EXPECT_FALSE(choose_capture(facts, {"a.json", 3, 5}, problems).on);
  return problems.text();
}

TEST(CaptureChoice, auto_takes_it_where_every_plugin_of_the_step_declared_it) {
  Problems problems;
  EXPECT_TRUE(choose_capture(able(), {}, problems).on);
  CaptureFacts off = able();
  off.wanted = Capture::off;
  EXPECT_FALSE(choose_capture(off, {}, problems).on);
  EXPECT_TRUE(problems.empty());
}

TEST(CaptureChoice, auto_says_why_not_and_stops_nothing) {
  CaptureFacts facts = able();
  facts.acting.push_back("strategy/s");
  facts.acting.push_back("optimizer/o");
  Problems problems;
  const CaptureChoice choice = choose_capture(facts, {}, problems);
  EXPECT_FALSE(choice.on);
  EXPECT_EQ(choice.why_not, "strategy/s, optimizer/o (not declared fit to be recorded)");
  facts.hidden_dropout = 0.1;
  EXPECT_EQ(choose_capture(facts, {}, problems)
                .why_not.find("hidden_dropout 0.1, whose numbers the host chooses in every step"),
            0u);
  facts.documents = true;
  EXPECT_NE(choose_capture(facts, {}, problems).why_not.find("several documents"), std::string::npos);
  facts.device = "cpu";  // nobody expects it there
  EXPECT_EQ(choose_capture(facts, {}, problems).why_not, "");
  EXPECT_TRUE(problems.empty());
}

TEST(CaptureChoice, who_is_recorded_when_asked_says_so_in_auto_and_is_recorded_with_true) {
  CaptureFacts facts = able();
  for (const char* id : {"data_parallel/d", "schedule/s"}) facts.acting.push_back(id), facts.when_asked.push_back(id);
  Problems problems;
  const CaptureChoice by_itself = choose_capture(facts, {}, problems);
  EXPECT_FALSE(by_itself.on);
  EXPECT_EQ(by_itself.why_not,
            "data_parallel/d, schedule/s: recorded only where \"capture\": true asks for it, until that has run on "
            "several GPUs");
  facts.wanted = Capture::on;
  EXPECT_TRUE(choose_capture(facts, {}, problems).on);
  EXPECT_TRUE(problems.empty());
  facts.acting.push_back("strategy/s");  // asking does not help: nothing is said of it
  facts.wanted = Capture::automatic;
  EXPECT_EQ(choose_capture(facts, {}, problems).why_not, "strategy/s (not declared fit to be recorded)");
}

TEST(CaptureChoice, true_is_refused_with_everything_in_the_way_and_its_place) {
  CaptureFacts facts = able();
  facts.acting.push_back("strategy/s");
  facts.attention_dropout = 0.5;
  const std::string text = problem_of(facts);
  for (const char* part : {"a.json:3:5", "\"capture\": true", "attention_dropout 0.5", "strategy/s (not declared",
                           "use \"capture\": \"auto\""})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  facts.in_the_way = {{"strategy/s", "its option x"}, {"strategy/s", "its option y"}};
  EXPECT_NE(problem_of(facts).find("recorded: attention_dropout 0.5, whose numbers the host chooses in every step; "
                                   "strategy/s: its option x; strategy/s: its option y\n"),
            std::string::npos)
      << problem_of(facts);
  facts = able();
  facts.device = "cpu";
  EXPECT_NE(problem_of(facts).find("needs \"device\": \"cuda\""), std::string::npos);
}

TEST(CaptureChoice, the_key_is_auto_true_or_false) {
  const auto read = [](const std::string& value) {
    Problems problems;
    const RunSettings settings =
        read_run_settings(parse_json("{\"train_steps\": 1, \"capture\": " + value + "}", "a.json"), "a.json", problems);
    return problems.empty() ? std::to_string(static_cast<int>(capture_wanted(settings))) : problems.text();
  };
  EXPECT_EQ(read("\"auto\""), std::to_string(static_cast<int>(Capture::automatic)));
  EXPECT_EQ(read("true"), std::to_string(static_cast<int>(Capture::on)));
  EXPECT_EQ(read("false"), std::to_string(static_cast<int>(Capture::off)));
  EXPECT_NE(read("\"yes\"").find("capture: expected \"auto\", true or false, found \"yes\""), std::string::npos);
  EXPECT_NE(read("1").find("capture: expected"), std::string::npos);
}

// What is chosen by default for a small model on "cuda"; planning needs no device.
std::unique_ptr<PreparedRun> planned(const std::string& more, int64_t ranks = 1) {
  TrainRequest request;
  Problems problems;
  request.config = parse_json(R"({"train_steps": 1, "train_batch_size": 4, "device": "cuda",
    "model": {"type": "gpt", "params": {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 1, "vocab_size": 16,
              "max_position_embeddings": 8}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 8}}, "optimizer": {"type": "AdamW", "params": {}})" +
                                  more + "}",
                              "test");
  request.settings = read_run_settings(request.config, "test.json", problems);
  request.chosen = choose_plugins(request.config, test::built_plugins(), "cuda", problems);
  problems.throw_if_any();
  // Its creation asks the driver for GPUs; alone, nothing is communicated.
  std::erase_if(request.chosen, [](const ChosenPlugin& plugin) { return plugin.kind() == Communicator::kKind; });
  request.setup.store = make_local_store();
  request.setup.environment.world_size = ranks;
  request.setup.log = make_console_log({.rank = 1});
  return prepare_run(request.settings, request.chosen, test::built_plugins(), request.setup, Purpose::train);
}

TEST(CaptureChoice, a_run_of_the_default_plugins_in_bfloat16_is_recorded) {
  const auto run = planned(R"(, "bf16": {"enabled": true})");
  EXPECT_TRUE(run->plan.capture.on) << run->plan.capture.why_not;
  EXPECT_EQ(run->plan.run.compute_dtype, "bfloat16");
  EXPECT_EQ(run->services->dtypes.param, at::kBFloat16);
  EXPECT_TRUE(planned(R"(, "attention": "standard")")->plan.capture.on);
  EXPECT_FALSE(planned(R"(, "attention": "standard", "capture": false)")->plan.capture.on);
}

TEST(CaptureChoice, ways_over_several_ranks_whose_overlap_wants_several_gpus_are_recorded_where_asked) {
  for (const char* way : {R"("zero_optimization": {"stage": 1})", R"("zero_optimization": {"stage": 2})",
                          R"("zero_optimization": {"stage": 3})", R"("data_parallel": "fsdp")",
                          R"("pipeline": {"type": "gpipe", "params": {"stages": 2}})",
                          R"("pipeline": {"type": "one_f_one_b", "params": {"stages": 2}})",
                          R"("pipeline": {"type": "interleaved", "params": {"stages": 2, "chunks": 2}})",
                          R"("pipeline": {"type": "zero_bubble_h1", "params": {"stages": 2}})"}) {
    const auto config = concat(", \"train_micro_batch_size_per_gpu\": 1, \"attention\": \"standard\", ", way);
    const auto by_itself = planned(config, 4);
    EXPECT_FALSE(by_itself->plan.capture.on) << way;
    EXPECT_NE(by_itself->plan.capture.why_not.find("recorded only where \"capture\": true"), std::string::npos)
        << way << by_itself->plan.capture.why_not;
    EXPECT_TRUE(planned(config + ", \"capture\": true", 4)->plan.capture.on) << way;
  }
  EXPECT_TRUE(planned(R"(, "attention": "standard")", 4)->plan.capture.on);  // data_parallel/ddp
  work_rank() = {};                                                          // as the tests behind this one expect it
}

TEST(CaptureChoice, what_lives_on_the_host_or_is_drawn_there_is_refused_by_its_key) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}})",
       "data_parallel/zero: offload_optimizer.device puts into the host's memory"},
      {R"("zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}})",
       "data_parallel/zero: offload_param.device puts"},
      {R"("zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2})",
       "data_parallel/zero: zero_hpz_partition_size = 2 has a second copy"},
      {R"("activation_checkpointing": {"cpu_checkpointing": true})", "recompute/full: cpu_checkpointing finds memory"},
      {R"("lora": {"targets": ["c_attn"], "lora_dropout": 0.5})", "strategy/lora: lora_dropout (dropout) 0.5 takes"},
      {R"("activation_checkpointing": "offload")", "recompute/offload: \"type\": \"offload\" finds memory"}};
  for (const auto& [section, said] : cases) {
    const std::string config = concat(", \"attention\": \"standard\", ", section);
    const std::string text = test::error_of([&] { planned(config + ", \"capture\": true", 4); });
    EXPECT_NE(text.find("\"capture\": true, but steps of this run cannot be recorded: "), std::string::npos) << text;
    EXPECT_NE(text.find(said), std::string::npos) << text;
    EXPECT_EQ(text.find("not declared fit"), std::string::npos) << text;
    EXPECT_NE(planned(config, 4)->plan.capture.why_not.find(said), std::string::npos) << section;
  }
  work_rank() = {};
}

}  // namespace
}  // namespace drivetrain
