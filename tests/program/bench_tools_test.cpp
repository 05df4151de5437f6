// tools/bench/strategies and draw: every run is a data point, in the file and in the picture.
#include "program/bench_fixture.h"

namespace drivetrain::test {
namespace {

// What tools/bench/strategies writes, of two strategies with three and two runs.
constexpr const char* kRuns = R"({"bench": "strategies", "config": "tiny", "threads": 1, "machine": {"idle": true},
  "runs": [{"side": "ours", "label": "ours, <one> & two", "processes": 2, "seconds": 1.5},
           {"side": "ours", "label": "ours, <one> & two", "processes": 2, "seconds": 1.75},
           {"side": "ours", "label": "ours, <one> & two", "processes": 2, "seconds": 1.25},
           {"side": "peer", "label": "a peer", "processes": 2, "seconds": 2.5},
           {"side": "peer", "label": "a peer", "processes": 4, "seconds": 3.5}]})";

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(Bench, the_picture_has_every_run_as_a_point_and_the_same_runs_give_the_same_picture) {
  const std::string draw = "python3 " DRIVETRAIN_SOURCE_DIR "/tools/bench/draw ";
  const std::string runs = write("runs.json", kRuns), picture = path("picture/a.svg");
  const Ran ran = run_shell(draw + runs + " --out " + picture);
  ASSERT_EQ(ran.code, 0) << ran.output;
  const Ran parsed = run_shell("python3 -c 'import sys, xml.dom.minidom as d; d.parse(sys.argv[1])' " + picture);
  EXPECT_EQ(parsed.code, 0) << parsed.output;
  const std::string svg = file_bytes(picture);
  EXPECT_EQ(count_of(svg, "<circle "), 5u);
  EXPECT_EQ(count_of(svg, " median\""), 3u);  // a strategy with as many processes has one
  expect_says(svg, {"prefers-color-scheme: dark", "seconds per step", "2 processes", "ours, &lt;one&gt; &amp; two",
                    "1.50 s", "4 processes", "3.50 s"});
  ASSERT_EQ(run_shell(draw + runs + " --out " + path("b.svg")).code, 0);
  EXPECT_EQ(file_bytes(path("b.svg")), svg);
  ASSERT_EQ(run_shell(draw + runs + " " + runs + " --out " + path("twice.svg")).code, 0);
  EXPECT_EQ(count_of(file_bytes(path("twice.svg")), "<circle "), 10u);
}

// Strategies of ours only: what others' libraries need is not there.
TEST_F(Bench, strategies_are_run_in_turns_and_every_run_is_written_and_drawn) {
  const std::string config = write("small.json", R"({"train_micro_batch_size_per_gpu": 2, "threads": 1,
      "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 64,
                "max_position_embeddings": 16}},
      "dataset": {"type": "synthetic", "params": {"seq_length": 8}}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})");
  const std::string tools = "python3 " DRIVETRAIN_SOURCE_DIR "/tools/bench/";
  const std::string command = tools + "strategies " + config + " --program " + program() +
                              " --peers none --ours ddp --processes 1 2 --rounds 1 --steps 1 --warmup 1 --out " +
                              path("runs.json") + " --strategy ";
  const Ran ran = run_shell(command + "'again:data_parallel=ddp;optimizer.lr=1e-3'");
  ASSERT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"| ours, ddp | 1 |", "| ours, again | 1 |", "| ours, ddp | 2 |", "| ours, again | 2 |"});
  const Value value = parse_json(file_bytes(path("runs.json")), "runs.json");
  ASSERT_EQ(value.find("runs")->items().size(), 4u);
  for (const Value& one : value.find("runs")->items()) {
    EXPECT_EQ(one.find("step_s")->items().size(), 1u);
    EXPECT_EQ(one.find("loss")->items().size(), 2u);
    EXPECT_EQ(one.find("peak_memory_bytes_by_rank")->items().size(),
              static_cast<size_t>(one.find("processes")->as_int()));
  }
  EXPECT_EQ(run_shell(tools + "draw " + path("runs.json") + " --out " + path("runs.svg")).code, 0);
  EXPECT_EQ(count_of(file_bytes(path("runs.svg")), "<circle "), 4u);
  const Ran other = run_shell(command + "'faster:optimizer.lr=0.5' --processes 1");
  EXPECT_EQ(other.code, 1);
  expect_says(other.output, {"losses do not agree", "ours, faster with 1 process is off by", "allowed 1e-05"});
}

// In the place of a Python with torch: a script that says what a peer would.
TEST_F(Bench, a_peer_whose_loss_is_no_number_or_of_which_a_rank_dies_is_no_comparison) {
  const std::string config = write("small.json", R"({"train_micro_batch_size_per_gpu": 2, "threads": 1,
      "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 64,
                "max_position_embeddings": 16}},
      "dataset": {"type": "synthetic", "params": {"seq_length": 8}}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})");
  const std::string python = write("python", R"(#!/bin/sh
[ "$1" = -c ] && exit 0
[ -z "$RANK" ] || [ "$RANK" = 1 ] || exec sleep 100000  # Waits: until it is ended
[ -z "$RANK" ] || { echo no memory left >&2; exit 3; }
for step in 1 2; do echo '{"loss": NaN, "step_s": 1, "peak_memory_bytes": 1, "peak_memory_bytes_by_rank": [1]}'; done
)");
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  const std::string tools = "python3 " DRIVETRAIN_SOURCE_DIR "/tools/bench/";
  const std::string common =
      config + " --program " + program() + " --python " + python + " --rounds 1 --steps 1 --warmup 1";
  const std::string strategies = tools + "strategies " + common + " --ours ddp --peers ddp,fsdp2 --processes ";
  const Ran alone = run_shell(strategies + "1");
  EXPECT_EQ(alone.code, 1);
  expect_says(alone.output, {"with 1 process PyTorch FSDP2 left out: nothing is shared", "losses do not agree",
                             "PyTorch DDP with 1 process is off by inf"});
  const Ran beside = run_shell(tools + "side_by_side " + common);
  EXPECT_EQ(beside.code, 1);
  expect_says(beside.output, {"losses of ours and of PyTorch eager differ by inf"});
  const Ran two = run_shell(strategies + "2");
  EXPECT_EQ(two.code, 1);
  expect_says(two.output, {"no memory left", "rank 1 of PyTorch DDP failed with 3"});
}

TEST_F(Bench, a_picture_of_something_else_is_refused) {
  const std::string draw = "python3 " DRIVETRAIN_SOURCE_DIR "/tools/bench/draw ";
  for (const char* text : {"{}", "[1]", "not JSON", R"({"runs": [{"label": "x"}]})"}) {
    const Ran ran = run_shell(draw + write("other.json", text) + " --out " + path("no.svg"));
    EXPECT_EQ(ran.code, 1);
    expect_says(ran.output, {"draw: ", "other.json"});
    EXPECT_EQ(ran.output.find("Traceback"), std::string::npos) << ran.output;
  }
}

}  // namespace
}  // namespace drivetrain::test
