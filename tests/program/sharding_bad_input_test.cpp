// Sharding sections that say something wrong, ranks that do not agree on them, and ranks that die while they share
// state.
#include "program/background.h"

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;

class Sharding : public ProgramTest {
 protected:
  static std::string set(const std::string& text) { return " --set '" + text + "'"; }
  static std::string zero(const std::string& section) { return set("zero_optimization={" + section + "}"); }
  static std::string fsdp(const std::string& params) {
    return set(R"(data_parallel={"type": "fsdp", "params": {)" + params + "}}");
  }

  void expect_launch_refused(int ranks, const std::string& sets, const std::vector<std::string>& parts) const {
    expect_refused(concat("launch -n ", ranks, " ", path("tiny.json"), sets), 2, parts);
  }
  static size_t count(const std::string& text, const std::string& part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
    return found;
  }
};

TEST_F(Sharding, options_of_stage_3_at_stage_1_are_named_once_and_the_run_goes_on) {
  const Ran ran = launch(2, zero(R"("stage": 1, "stage3_prefetch_bucket_size": 1000, "max_live_parameters": 5)"));
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"no effect: data_parallel/zero: ", "changes nothing: it is for stage 3"});
  for (const char* key : {"stage3_prefetch_bucket_size changes nothing", "stage3_max_live_parameters changes nothing"})
    EXPECT_EQ(count(ran.output, key), 1u) << key << "\n" << ran.output;
  EXPECT_FALSE(final_weights("run").empty());
}

TEST_F(Sharding, options_that_have_their_effect_are_not_named) {
  const Ran ran = launch(
      2, zero(R"("stage": 3, "stage3_prefetch_bucket_size": 1000, "reduce_bucket_size": 2000, "overlap_comm": true)"));
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_EQ(ran.output.find("no effect"), std::string::npos) << ran.output;
}

TEST_F(Sharding, an_unknown_option_gets_the_nearest_name) {
  expect_train_refused(
      zero(R"("stage": 2, "reduce_bucket_sise": 5)"), 2,
      {"zero_optimization.reduce_bucket_sise", "data_parallel/zero", "did you mean \"reduce_bucket_size\"?"});
  expect_train_refused(fsdp(R"("reshard_after_foward": true)"), 2,
                       {"reshard_after_foward", "data_parallel/fsdp", "did you mean \"reshard_after_forward\"?"});
}

TEST_F(Sharding, a_stage_that_does_not_exist_is_refused_with_the_range) {
  expect_train_refused(zero(R"("stage": 4)"), 2, {"zero_optimization", "stage is 4", "3"});
  expect_train_refused(zero(R"("stage": 1, "reduce_bucket_size": -1)"), 2, {"reduce_bucket_size is -1", "at least 0"});
}

TEST_F(Sharding, sums_of_a_negative_number_of_micro_batches_are_refused) {
  expect_train_refused(set("reduce_every=-1"), 2, {"reduce_every is -1", "takes 0 to"});
}

// DeepSpeed takes such a file and leaves the parameters where they are.
TEST_F(Sharding, parameters_on_the_host_without_their_stage_are_named_as_without_effect) {
  for (const char* stage : {"1", "2"}) {
    const Ran ran = launch(2, zero(concat(R"("stage": )", stage, R"(, "offload_param": {"device": "cpu"})")) +
                                  set(concat("output_dir=", path("run"), stage)));
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_EQ(count(ran.output, "offload_param changes nothing"), 1u) << ran.output;
    expect_says(ran.output, {"no effect: data_parallel/zero: ", "at stage 3", concat("found stage ", stage)});
  }
}

TEST_F(Sharding, disks_are_refused_as_not_in_this_version) {
  expect_train_refused(zero(R"("stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/tmp"})"), 2,
                       {"offload_optimizer.device = \"nvme\"", "not in this version", "\"none\""});
  expect_train_refused(zero(R"("stage": 3, "offload_param": {"device": "nvme"})"), 2,
                       {"offload_param.device = \"nvme\"", "not in this version"});
  expect_train_refused(zero(R"("stage": 2, "offload_optimizer": {"device": "gpu"})"), 2,
                       {"offload_optimizer.device is \"gpu\"", "\"none\", \"cpu\""});
}

TEST_F(Sharding, groups_that_do_not_divide_the_ranks_are_refused_with_both_numbers) {
  const std::string four = set("train_batch_size=4");
  expect_launch_refused(4, four + zero(R"("stage": 1, "group_size": 3)"),
                        {"group_size = 3 does not divide the 4 ranks", "1, 2, 4"});
  expect_launch_refused(4, four + zero(R"("stage": 3, "mics_shard_size": 3)"),
                        {"mics_shard_size = 3 does not divide the 4 ranks", "1, 2, 4"});
  expect_launch_refused(4, four + zero(R"("stage": 3, "zero_hpz_partition_size": 3)"),
                        {"zero_hpz_partition_size = 3 does not divide the 4 ranks"});
  expect_launch_refused(4, four + fsdp(R"("shard_group_size": 3)"),
                        {"data_parallel/fsdp", "shard_group_size = 3 does not divide the 4 ranks"});
  expect_launch_refused(2, zero(R"("stage": 2, "group_size": 4)"), {"group_size = 4 does not divide the 2 ranks"});
}

TEST_F(Sharding, two_strategies_at_once_are_refused_with_both_places) {
  expect_train_refused(zero(R"("stage": 1)") + set("data_parallel=fsdp"), 2,
                       {"--set #2", "zero_optimization (--set #1)", "both choose the data_parallel (fsdp and zero)",
                        "keep one of them"});
}

TEST_F(Sharding, both_half_precisions_at_once_are_refused_with_both_places) {
  expect_train_refused(
      set("bf16.enabled=true") + set("fp16.enabled=true"), 2,
      {"--set #2", "bf16 (--set #1)", "both choose the precision (fp16 and bf16)", "keep one of them"});
}

// Ranks started one by one, as launchers of other kinds do.
class DisagreeingRanks : public Sharding {
 protected:
  // The build's prefix once more, so that a library can be another one for one rank.
  DisagreeingRanks() {
    fs::create_directories(path("prefix/lib/drivetrain/plugins"));
    fs::create_directories(path("prefix/bin"));
    fs::copy(program(), path("prefix/bin/drivetrain"));
    fs::copy(DRIVETRAIN_BUILD_DIR "/lib/libdrivetrain.so", path("prefix/lib"));
    fs::copy(DRIVETRAIN_BUILD_DIR "/lib/drivetrain/commands", path("prefix/lib/drivetrain/commands"));
    for (const auto& entry : fs::directory_iterator(DRIVETRAIN_BUILD_DIR "/lib/drivetrain/plugins"))
      fs::copy(entry.path(), path("prefix/lib/drivetrain/plugins/") + entry.path().filename().string());
  }
  std::string installed(const std::string& file) const { return path("prefix/lib/drivetrain/plugins/" + file); }
  // As if linked from other sources. A new file in the old one's place: who runs the old one keeps it.
  void give_another_build_id(const std::string& file) const {
    std::string bytes = file_bytes(installed(file));
    const size_t note = bytes.find(std::string("GNU\0", 4));  // the name in the note, before the id
    ASSERT_NE(note, std::string::npos);
    bytes[note + 4] = static_cast<char>(bytes[note + 4] ^ 0x5a);
    std::ofstream(path("new.so"), std::ios::binary) << bytes;
    fs::rename(path("new.so"), installed(file));
  }
  Background start(const std::string& executable, int rank, const std::vector<std::string>& sets,
                   const std::string& port) const {
    std::vector<std::string> words = {executable, "train", path("tiny.json")};
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    return Background(
        folder(), words,
        {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
  }
  static std::string port() { return std::to_string(20000 + getpid() % 20000); }

  void expect_refused_by_both(Background& first, Background& second, int code,
                              const std::vector<std::string>& parts) const {
    for (Background* rank : {&first, &second}) {
      EXPECT_EQ(rank->wait(), code) << rank->output();
      expect_says(rank->output(), parts);
    }
    EXPECT_FALSE(fs::exists(path("run")));
  }
};

TEST_F(DisagreeingRanks, other_stages_are_named_before_the_first_collective) {
  Background first = start(program(), 0, {R"(zero_optimization={"stage": 1})"}, port());
  Background second = start(program(), 1, {R"(zero_optimization={"stage": 2})"}, port());
  expect_refused_by_both(first, second, 2, {"not started alike", "stage", "1 on rank 0", "2 on rank 1"});
}

TEST_F(DisagreeingRanks, another_strategy_is_named_before_the_first_collective) {
  Background first = start(program(), 0, {R"(zero_optimization={"stage": 2})"}, port());
  Background second = start(program(), 1, {R"(data_parallel=fsdp)"}, port());
  expect_refused_by_both(first, second, 2, {"not started alike", "\"zero\" on rank 0", "\"fsdp\" on rank 1"});
}

TEST_F(DisagreeingRanks, another_build_of_a_plugin_is_named_before_the_first_collective) {
  const std::vector<std::string> sets = {R"(zero_optimization={"stage": 2})"};
  const std::string executable = path("prefix/bin/drivetrain"), library = "data_parallel_zero.so";
  Background first = start(executable, 0, sets, port());
  ASSERT_TRUE(eventually([&] {
    return file_bytes(concat("/proc/", first.pid(), "/maps")).find(library) != std::string::npos;
  })) << first.output();
  give_another_build_id(library);
  Background second = start(executable, 1, sets, port());
  expect_refused_by_both(first, second, 2,
                         {"not started alike", "data_parallel/zero.build_id", "on rank 0", "on rank 1"});
}

// State is shared when a rank dies: nobody hangs, nothing is left, and the next run is not disturbed by what was.
class DyingRank : public Sharding, public testing::WithParamInterface<const char*> {
 protected:
  static std::set<std::string> shared_memory() {
    std::set<std::string> names;
    std::error_code absent;
    for (const auto& entry : fs::directory_iterator("/dev/shm", absent)) {
      const std::string name = entry.path().filename();
      // Scratch folders of tests that run beside this one.
      if (!name.starts_with("drivetrain-test-") && !name.starts_with("drivetrain-fuzz-")) names.insert(name);
    }
    return names;
  }
  // Names of other runs of this machine come and go.
  static bool nothing_stays_beside(const std::set<std::string>& before) {
    std::set<std::string> stayed = shared_memory();
    for (const std::string& name : before) stayed.erase(name);
    return eventually([&] {
      const std::set<std::string> now = shared_memory();
      std::erase_if(stayed, [&](const std::string& name) { return !now.contains(name); });
      return stayed.empty();
    });
  }
  Background running(int ranks) const {
    std::vector<std::string> words = {
        program(),  "launch", path("tiny.json"),    "--set", "train_steps=100000000", "--set",
        GetParam(), "-n",     std::to_string(ranks)};
    Background launch(folder(), words);
    EXPECT_TRUE(launch.wait_for_file(path("run/metrics.jsonl"))) << launch.output();
    return launch;
  }
  int pid_of_rank(int rank) const {
    const std::string wanted = concat('\0', "RANK=", rank, '\0');
    for (const int pid : processes_with(path("tiny.json")))
      if (('\0' + file_bytes("/proc/" + std::to_string(pid) + "/environ")).find(wanted) != std::string::npos)
        return pid;
    // not -1: kill() takes that for every process there is
    throw std::runtime_error(concat("no process of rank ", rank));
  }
  void expect_a_next_run_to_work() const {
    fs::remove_all(path("run"));
    const Ran ran = launch(4, set(GetParam()));
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_FALSE(final_weights("run").empty());
  }
};

TEST_P(DyingRank, is_named_and_leaves_nothing_that_hurts_the_next_run) {
  const std::set<std::string> before = shared_memory();
  Background launch = running(4);
  const int victim = pid_of_rank(2);
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  EXPECT_EQ(launch.wait(), 128 + SIGKILL) << launch.output();
  expect_says(launch.output(), {concat("rank 2 (pid ", victim, ") died")});
  expect_says(launch.output(), {"drivetrain launch: rank 2 failed first: killed by signal 9"});
  EXPECT_TRUE(eventually([&] { return processes_with(folder()).empty(); }));
  expect_nothing_half_written();
  EXPECT_TRUE(nothing_stays_beside(before));
  expect_a_next_run_to_work();
}

TEST_P(DyingRank, as_all_of_them_at_once_leaves_nothing_either) {
  const std::set<std::string> before = shared_memory();
  Background launch = running(2);
  for (const int pid : processes_with(path("tiny.json")))
    if (pid != launch.pid()) kill(pid, SIGKILL);
  launch.signal(SIGKILL);
  EXPECT_EQ(launch.wait(), 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return processes_with(folder()).empty(); }));
  EXPECT_TRUE(nothing_stays_beside(before));
  expect_a_next_run_to_work();
}

INSTANTIATE_TEST_SUITE_P(Of, DyingRank,
                         testing::Values(R"(zero_optimization={"stage":1})", R"(zero_optimization={"stage":2})",
                                         R"(zero_optimization={"stage":3,"stage3_param_persistence_threshold":0})",
                                         R"(data_parallel=fsdp)"),
                         [](const auto& info) {
                           return std::string(std::array{"stage_1", "stage_2", "stage_3", "fsdp"}.at(info.index));
                         });

}  // namespace
}  // namespace drivetrain::test
