// Files that are missing, cut short or hold what the model cannot take, numbers that run away, and a disk that is full.
#include <sys/stat.h>

#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>

#include "program/background.h"

namespace drivetrain::test {
namespace {

constexpr int64_t kSteps = 6, kRows = 4, kLength = 8;

struct Tensor {
  std::string name;
  std::vector<int64_t> shape, values;
};

void write_tensors(const std::string& path, const std::vector<Tensor>& tensors) {
  std::string header = "{", data;
  for (const Tensor& t : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(t.values.data()), t.values.size() * sizeof(int64_t));
    std::string shape;
    for (const int64_t n : t.shape) shape += (shape.empty() ? "" : ",") + std::to_string(n);
    header += concat(header.size() > 1 ? "," : "", "\"", t.name, "\":{\"dtype\":\"I64\",\"shape\":[", shape,
                     "],\"data_offsets\":[", begin, ",", data.size(), "]}");
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t size = header.size();
  std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char*>(&size), 8) << header << data;
}

class BadInput : public ProgramTest {
 protected:
  BadInput() {
    for (int64_t i = 0; i < kSteps * kRows * (kLength + 1); ++i) tokens_.values.push_back(i * 7 % 64);
    for (int64_t i = 0; i < kSteps * kRows * kLength; ++i) labels_.values.push_back(i * 5 % 64);
    tiny_with(R"({"type": "synthetic", "params": {"seq_length": 8}})",
              R"({"type": "token_batches", "params": {"file": "data.safetensors"}})");
  }
  int64_t& token(int64_t step, int64_t row, int64_t at) {
    return tokens_.values[static_cast<size_t>(((step - 1) * kRows + row) * (kLength + 1) + at)];
  }
  int64_t& label(int64_t step, int64_t row, int64_t at) {
    return labels_.values[static_cast<size_t>(((step - 1) * kRows + row) * kLength + at)];
  }
  void write_data(bool labels = false) const {
    write_tensors(path("data.safetensors"), labels ? std::vector<Tensor>{tokens_, labels_} : std::vector{tokens_});
  }
  // A copy of the golden model in the folder "model".
  void copy_model() const {
    std::filesystem::copy(DRIVETRAIN_GOLDEN_DIR "/gpt2_tiny/model", path("model"));
    write_data();
  }
  void cut(const std::string& name, int64_t bytes) const {
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path(name)));
    std::filesystem::resize_file(path(name), static_cast<uintmax_t>(bytes < 0 ? size + bytes : bytes));
  }
  // Failed at `step`: the metrics end there, the error ends log.txt too, there are no final weights.
  void expect_stopped_before(size_t step) const {
    EXPECT_EQ(read_metrics(path("run")).size(), step - 1);
    EXPECT_FALSE(std::filesystem::exists(path("run/final")));
    expect_says(file_bytes(path("run/log.txt")), {"drivetrain: error: "});
    expect_nothing_half_written();
  }

  Tensor tokens_{"tokens", {kSteps, 1, kRows, kLength + 1}, {}};
  Tensor labels_{"labels", {kSteps, 1, kRows, kLength}, {}};
};

TEST_F(BadInput, a_missing_config_file_is_named) {
  expect_refused("train " + path("nothing.json"), 2, {path("nothing.json"), "cannot be opened", "No such file"});
  expect_refused("launch -n 2 " + path("nothing.json"), 2, {"cannot read the config file", path("nothing.json")});
  expect_refused("config check " + path("nothing.json"), 2, {path("nothing.json"), "No such file"});
  expect_refused("train " + folder(), 2, {"is a folder; a JSON file was wanted"});
}

TEST_F(BadInput, a_config_may_come_through_a_pipe_and_nothing_else_is_waited_for) {
  write_data();
  const Ran piped = run_shell("cd " + folder() + " && cat tiny.json | " + program() + " config check /dev/stdin");
  EXPECT_EQ(piped.code, 0) << piped.output;
  expect_refused("train /dev/zero", 2, {"/dev/zero: is a device", "name a file or a pipe"});
}

TEST_F(BadInput, a_pipe_in_a_model_folder_is_refused_at_once) {
  write_data();
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::remove_all(path("model"));
    copy_model();
    std::filesystem::remove(path(std::string("model/") + name));
    ASSERT_EQ(mkfifo(path(std::string("model/") + name).c_str(), 0600), 0);
    expect_train_refused("--set 'model={\"from\":\"model\"}'", 2, {path(std::string("model/") + name), "is a pipe"});
  }
  std::filesystem::remove(path("data.safetensors"));
  ASSERT_EQ(mkfifo(path("data.safetensors").c_str(), 0600), 0);
  expect_train_refused("", 2, {path("data.safetensors"), "is a pipe; a safetensors file was wanted"});
}

TEST_F(BadInput, a_missing_data_file_is_named_with_dataset_and_place) {
  expect_train_refused("", 2, {"tiny.json:7:14", "dataset/token_batches", path("data.safetensors"), "No such file"});
  expect_train_refused("--set 'dataset={\"type\":\"text\",\"params\":{\"files\":[\"" + path("texts") +
                           "/*.txt\"],\"seq_length\":8}}' --set model.vocab_size=256",
                       2, {"dataset/text", path("texts/*.txt"), "matches no file"});
}

TEST_F(BadInput, a_dataset_too_short_for_a_benchmark_is_told_by_the_options_that_ask_for_it) {
  write_data();
  expect_refused("bench step " + path("tiny.json") + " --steps 10 --warmup 2", 2,
                 {"bench step: --steps 10 after --warmup 2 are 12 steps, the dataset has 6"});
}

TEST_F(BadInput, a_missing_model_folder_is_named) {
  write_data();
  expect_train_refused("--set 'model={\"from\":\"model\"}'", 2,
                       {path("model"), "is not a folder", "Hugging Face model folder"});
  std::filesystem::create_directory(path("model"));
  expect_train_refused("--set 'model={\"from\":\"model\"}'", 2, {path("model"), "has no config.json"});
}

TEST_F(BadInput, a_truncated_data_file_says_how_much_is_missing) {
  write_data();
  cut("data.safetensors", -10);
  expect_train_refused(
      "", 8, {"dataset/token_batches", "data.safetensors", "10 bytes are missing", "damaged or was cut short"});
  cut("data.safetensors", 5);
  expect_train_refused("", 8, {"it has 5 bytes, too few for the header", "damaged or was cut short"});
}

TEST_F(BadInput, a_data_file_that_is_cut_short_while_it_is_read_ends_the_run_with_both_sizes_and_the_step) {
  constexpr int64_t kMany = 20000;  // it is cut long before they are through
  Tensor tokens{"tokens", {kMany, 1, kRows, kLength + 1}, std::vector<int64_t>(kMany * kRows * (kLength + 1), 1)};
  write_tensors(path("data.safetensors"), {tokens});
  const auto size = std::filesystem::file_size(path("data.safetensors"));
  Background run(folder(), {program(), "train", path("tiny.json"), "--set", "train_steps=20000"});
  ASSERT_TRUE(run.wait_for_file(path("run/metrics.jsonl"))) << run.output();
  cut("data.safetensors", 1000);
  EXPECT_EQ(run.wait(), 8) << run.output();
  expect_says(run.output(), {"in dataset/token_batches, hook read, step ", path("data.safetensors"),
                             "was cut short while it was in use", concat("had ", size, " bytes"), "has 1000 now",
                             "put the whole file back"});
  expect_nothing_half_written();
}

TEST_F(BadInput, a_tensor_that_means_nothing_in_a_data_file_is_refused) {
  labels_.name = "lacels";
  write_data(/*labels=*/true);
  expect_train_refused("", 2,
                       {"tiny.json:7:14", "dataset/token_batches", path("data.safetensors"), "\"lacels\"",
                        "\"labels\" and \"documents\"", "did you mean \"labels\"?"});
}

TEST_F(BadInput, truncated_weights_are_refused_on_all_ranks_before_a_run_folder_is_made) {
  copy_model();
  cut("model/model.safetensors", -100);
  const std::vector<std::string> parts = {path("model/model.safetensors"), "100 bytes are missing", "download"};
  expect_train_refused("--set 'model={\"from\":\"model\"}'", 8, parts);
  expect_refused("launch -n 2 " + path("tiny.json") + " --set 'model={\"from\":\"model\"}'", 8, parts);
  std::filesystem::remove(path("model/model.safetensors"));
  expect_train_refused("--set 'model={\"from\":\"model\"}'", 2,
                       {path("model"), "has neither model.safetensors nor model.safetensors.index.json"});
}

TEST_F(BadInput, too_few_steps_in_the_data_say_how_many_there_are) {
  write_data();
  expect_train_refused("--set train_steps=7", 2,
                       {"tiny.json:7:14", "train_steps is 7", "the dataset has 6 steps", "Set train_steps to 6"});
}

TEST_F(BadInput, a_token_beyond_the_vocabulary_is_named_with_step_and_row) {
  token(3, 3, 5) = 64;
  write_data();
  const Ran ran = train();
  EXPECT_EQ(ran.code, 8) << ran.output;
  expect_says(ran.output,
              {"dataset/token_batches", "step 3", "token 64 in row 3, position 5", "(0 to 63)", "vocab_size"});
  expect_stopped_before(3);
}

TEST_F(BadInput, a_token_beyond_the_vocabulary_of_one_rank_ends_the_others_with_its_reason) {
  token(3, 3, 5) = 64;
  write_data();
  const Ran ran = launch(2);
  EXPECT_EQ(ran.code, 8) << ran.output;
  expect_says(ran.output, {"[rank 1] drivetrain: error: ", "step 3: token 64 in row 3",
                           "rank 1 failed first: exit 8 (input or output)"});
  expect_stopped_before(3);
}

TEST_F(BadInput, a_label_out_of_range_is_named_and_told_from_one_that_does_not_count) {
  label(2, 0, 0) = -100;
  label(2, 2, 1) = -5;
  write_data(true);
  const Ran ran = train();
  EXPECT_EQ(ran.code, 8) << ran.output;
  expect_says(ran.output, {"step 2", "label -5 in row 2, position 1", "-100 where it should not count"});
  expect_stopped_before(2);
}

TEST_F(BadInput, a_run_without_any_label_that_counts_is_refused_before_it_begins) {
  for (int64_t& value : labels_.values) value = -100;
  write_data(true);
  const Ran ran = train();
  EXPECT_EQ(ran.code, 8) << ran.output;
  expect_says(ran.output, {"data.safetensors", "no label of its", "-100", "write \"labels\""});
  EXPECT_EQ(read_metrics(path("run")).size(), 0u);
  EXPECT_FALSE(std::filesystem::exists(path("run/final")));
  expect_nothing_half_written();
}

// Its file has labels, in steps that the run does not come to.
TEST_F(BadInput, a_run_that_met_no_label_that_counts_is_an_error_at_its_end) {
  for (int64_t& value : labels_.values) value = -100;
  label(kSteps, 0, 0) = 1;
  write_data(true);
  const Ran ran = train("--set train_steps=2");
  EXPECT_EQ(ran.code, 8) << ran.output;
  expect_says(ran.output, {"no step of this run had a label that counts", "-100", "untrained"});
}

TEST_F(BadInput, steps_and_evaluations_without_a_label_add_nothing) {
  for (const int64_t step : {1, 3})
    for (int64_t i = 0; i < kRows * kLength; ++i) label(step, 0, i) = -100;
  for (int64_t i = 0; i < kLength; ++i)
    label(2, 1, i) = -100;  // all that one of two ranks has in its first micro-batch
  write_data(true);
  const std::string set =
      R"(--set 'eval={"sets": {"quiet": {"type": "perplexity", "params": {"part": "train", "iters": 1,
      "batch_size": 4, "source": {"type": "token_batches", "params": {"file": "data.safetensors"}}}}}}' )";
  std::vector<double> losses[2];
  for (const int ranks : {1, 2}) {
    const Ran ran = launch(ranks, set + "--set train_micro_batch_size_per_gpu=1");
    EXPECT_EQ(ran.code, 0) << ran.output;
    expect_says(ran.output, {"step 1: the update is left out", "data.safetensors, step 1, row 0",
                             "so it was in 2 steps", "the evaluation of quiet after step 5 has no figures"});
    for (const Value& line : read_metrics(path("run"))) {
      const int64_t step = line.find("step")->as_int();
      const bool none = step == 1 || step == 3;
      EXPECT_EQ(line.find("loss")->is_null(), none);
      EXPECT_EQ(line.find("grad_norm")->is_null(), none);
      EXPECT_EQ(line.find("skipped") != nullptr, none);
      EXPECT_EQ(line.find("tokens")->as_int() == 0, none);
      losses[ranks - 1].push_back(none ? -1 : line.find("loss")->as_double());
    }
    std::filesystem::remove_all(path("run"));
  }
  ASSERT_EQ(losses[0].size(), losses[1].size());
  ASSERT_GE(losses[0].size(), 4u);
  for (size_t k = 0; k < losses[0].size(); ++k) EXPECT_NEAR(losses[0][k], losses[1][k], 1e-5) << "step " << k + 1;
}

TEST_F(BadInput, a_loss_that_is_not_finite_stops_the_run_at_its_step) {
  write_data();
  for (const int ranks : {1, 2}) {
    const Ran ran = launch(ranks, "--set optimizer.lr=1e30");
    EXPECT_EQ(ran.code, 7) << ran.output;
    expect_says(ran.output, {"step 2: loss is ", "nan", "The weights are those of step 1", "lower learning rate"});
    expect_stopped_before(2);
    std::filesystem::remove_all(path("run"));
  }
}

// -- a full disk

class FullDisk : public ProgramTest {
 protected:
  // Runs forever and soon meets a file that may not grow by more than `bytes`: what a full disk does, without the right
  // to mount one. It stands while its file is measured.
  Background limited(rlim_t bytes, const std::string& more = "threads=1") {
    Background run(folder(), {program(), "train", path("tiny.json"), "--set", "train_steps=1000000", "--set", more});
    EXPECT_TRUE(run.wait_for_file(path("run/metrics.jsonl"))) << run.output();
    run.signal(SIGSTOP);
    waitpid(run.pid(), nullptr, WUNTRACED);
    limit_ = {std::filesystem::file_size(path("run/metrics.jsonl")) + bytes, RLIM_INFINITY};
    EXPECT_EQ(prlimit(run.pid(), RLIMIT_FSIZE, &limit_, nullptr), 0) << std::strerror(errno);
    return run;
  }
  rlimit limit_ = {};
};

TEST_F(FullDisk, metrics_that_cannot_be_written_end_the_run_and_every_line_is_whole) {
  Background run = limited(100001);
  run.signal(SIGCONT);
  EXPECT_EQ(run.wait(), 8) << run.output();
  expect_says(run.output(), {"drivetrain: error: in monitor/jsonl", path("run/metrics.jsonl"), "free some space"});
  const std::string metrics = file_bytes(path("run/metrics.jsonl"));
  EXPECT_LE(metrics.size(), limit_.rlim_cur);
  EXPECT_EQ(metrics.back(), '\n');
  EXPECT_GT(read_metrics(path("run")).size(), 100u);
  EXPECT_FALSE(std::filesystem::exists(path("run/final")));
}

TEST_F(FullDisk, final_weights_that_do_not_fit_leave_no_half_folder) {
  Background run = limited(50000, "model.vocab_size=100000");  // room for many steps, not for 6 MB of weights
  ASSERT_LT(limit_.rlim_cur, 6000000u);
  run.signal(SIGTERM);
  run.signal(SIGCONT);
  EXPECT_EQ(run.wait(), 8) << run.output();
  expect_says(run.output(),
              {"drivetrain: error: ", "the final weights", path("run/final"), "cannot reserve the space"});
  EXPECT_FALSE(std::filesystem::exists(path("run/final")));
  expect_nothing_half_written();
}

TEST_F(BadInput, two_runs_that_start_into_one_folder_do_not_mix) {
  write_data();
  for (int round = 0; round < 3; ++round) {
    std::filesystem::remove_all(path("run"));
    std::vector<Background> runs;
    for (int i = 0; i < 3; ++i)
      runs.emplace_back(folder(), std::vector<std::string>{program(), "train", path("tiny.json")});
    std::multiset<int> codes;
    for (Background& run : runs) codes.insert(run.wait());
    EXPECT_EQ(codes, (std::multiset<int>{0, 2, 2}));
    EXPECT_EQ(read_metrics(path("run")).size(), 5u);
    expect_says(file_bytes(path("run/log.txt")), {"final weights in"});
  }
  for (int round = 0; round < 3; ++round) {
    std::filesystem::remove_all(path("run"));
    std::vector<Background> launches;
    for (int i = 0; i < 2; ++i)
      launches.emplace_back(folder(), std::vector<std::string>{program(), "launch", "-n", "2", path("tiny.json")});
    std::multiset<int> codes;
    for (Background& launch : launches) codes.insert(launch.wait());
    EXPECT_EQ(codes, (std::multiset<int>{0, 2}));
    EXPECT_EQ(file_bytes(path("run/log.txt")).find("[rank 1]"), std::string::npos) << "a rank of the refused run";
  }
}

TEST_F(BadInput, what_stands_where_a_run_writes_is_told_before_the_first_step) {
  write_data();
  const auto refused = [&](int code, const std::vector<std::string>& parts) {
    const Ran ran = train();
    EXPECT_EQ(ran.code, code) << ran.output;
    expect_says(ran.output, parts);
    EXPECT_TRUE(read_metrics(path("run")).empty());
    std::filesystem::remove_all(path("run"));
  };
  write("run/final/mine.txt", "kept");
  refused(2, {path("run/final"), "not an empty folder", "--set output_dir"});
  std::filesystem::create_directories(path("run"));
  std::filesystem::create_symlink("elsewhere", path("run/final"));
  refused(2, {path("run/final"), "--set output_dir"});
  std::filesystem::create_directories(path("run"));
  ASSERT_EQ(mkfifo(path("run/log.txt").c_str(), 0600), 0);
  refused(8, {path("run/log.txt"), "no regular file"});
}

TEST_F(BadInput, a_final_folder_that_somebody_takes_meanwhile_loses_no_weights) {
  Background run(folder(), {program(), "train", write("long.json", kTiny), "--set", "train_steps=1000000"});
  ASSERT_TRUE(run.wait_for_file(path("run/metrics.jsonl")));
  write("run/final/mine.txt", "kept");
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(), 128 + SIGTERM) << run.output();
  expect_says(run.output(), {"is there already", path("run/final-2")});
  EXPECT_TRUE(std::filesystem::exists(path("run/final-2/model.safetensors")));
  EXPECT_EQ(file_bytes(path("run/final/mine.txt")), "kept");
}

TEST_F(BadInput, an_address_space_without_room_for_LibTorch_is_out_of_memory) {
  write_data();
  for (const char* limit : {"100000", "300000", "400000"}) {
    const Ran ran = run_shell(concat("ulimit -v ", limit, "; ", program(), " train ", path("tiny.json")));
    EXPECT_EQ(ran.code, 4) << limit << ran.output;
    expect_says(ran.output, {"ulimit -v"});
    EXPECT_EQ(ran.output.find("internal error"), std::string::npos) << ran.output;
  }
}

TEST_F(BadInput, an_output_folder_that_cannot_be_made_is_named) {
  write_data();
  expect_train_refused("--set output_dir=" + path("tiny.json/run"), 8,
                       {"cannot create output_dir", path("tiny.json/run"), "--set output_dir"});
}

}  // namespace
}  // namespace drivetrain::test
