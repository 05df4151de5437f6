// The program under mpirun, as a user starts it: the same losses as with communicator/local, runs that do not meet each
// other, and what happens when it is started another way or a rank is lost.
#include <sys/stat.h>

#include "golden/golden_config.h"
#include "program/background.h"

namespace drivetrain::test {
namespace {

class UnderMpirun : public ProgramTest {
 protected:
  // mpirun may return a moment before the ranks that it has ended are gone.
  ~UnderMpirun() override {
    eventually([&] { return processes_with(folder()).empty(); });
  }
  static std::string mpirun(int ranks) { return concat(DRIVETRAIN_MPIRUN " -n ", ranks, " "); }
  Ran run_mpi(int ranks, const std::string& arguments, const std::string& environment = "") const {
    return run_shell("cd " + folder() + " && env " + environment + " " + mpirun(ranks) + program() + " train " +
                     arguments + " --set communicator=mpi");
  }
  // Two ranks; MPI_Finalize does not return on `hangs`. mpirun returns 9 where it has killed ranks that still waited,
  // and 1 where these got a SIGHUP first.
  Ran run_that_hangs_at_its_end(int hangs, const std::string& timeout_s, const std::string& environment = "") const {
    const Ran ran = run_shell(concat("cd ", folder(), " && env LD_PRELOAD=" DRIVETRAIN_HANG_AT_END " HANG_RANK=", hangs,
                                     " ", environment, " ", mpirun(2), program(), " train ", path("tiny.json"),
                                     " --set communicator.type=mpi --set communicator.timeout_s=", timeout_s));
    const bool hung_up = ran.code == SIGHUP && ran.output.find("Hangup (signal 1)") != std::string::npos;
    EXPECT_TRUE(ran.code == 0 || ran.code == SIGKILL || hung_up) << ran.code << "\n" << ran.output;
    EXPECT_EQ(computed("run").size(), 5u);
    EXPECT_FALSE(final_weights("run").empty());
    expect_nothing_half_written();
    return ran;
  }
  Background start_mpi(int ranks, const std::string& run_folder, const std::string& steps) const {
    return Background(folder(),
                      {DRIVETRAIN_MPIRUN, "-n", std::to_string(ranks), program(), "train", path("tiny.json"), "--set",
                       "communicator=mpi", "--set", "output_dir=" + run_folder, "--set", "train_steps=" + steps});
  }
  // What the steps computed, without what they took.
  std::vector<std::string> computed(const std::string& run_folder) const {
    std::vector<std::string> lines;
    for (const Value& line : read_metrics(path(run_folder)))
      lines.push_back(concat(line.find("loss")->to_json(), " ", line.find("grad_norm")->to_json()));
    return lines;
  }
  // mpirun names the folder, too.
  std::vector<int> rank_processes() const {
    std::vector<int> ranks;
    for (const int pid : processes_with(path("tiny.json")))
      if (file_bytes("/proc/" + std::to_string(pid) + "/cmdline").starts_with(program())) ranks.push_back(pid);
    return ranks;
  }
};

TEST_F(UnderMpirun, losses_and_weights_are_those_of_communicator_local_bit_for_bit) {
  const std::string config =
      write("golden.json", golden_config("gpt2_tiny", 2, "matrices").to_json(2)) + " --set threads=1";
  for (const int stage : {0, 1, 3}) {
    SCOPED_TRACE(concat("zero_optimization.stage ", stage));
    const std::string sharded = stage == 0 ? "" : concat(" --set zero_optimization.stage=", stage);
    const std::string by_mpi = concat("mpi", stage), by_local = concat("local", stage);
    const Ran mpi = run_mpi(2, config + sharded + " --set output_dir=" + by_mpi);
    ASSERT_EQ(mpi.code, 0) << mpi.output;
    const Ran local = run("launch -n 2 " + config + sharded + " --set output_dir=" + by_local);
    ASSERT_EQ(local.code, 0) << local.output;
    EXPECT_EQ(computed(by_mpi).size(), 20u);
    EXPECT_EQ(computed(by_mpi), computed(by_local));
    EXPECT_EQ(final_weights(by_mpi), final_weights(by_local));
    expect_says(file_bytes(path(by_mpi + "/resolved.json")), {"\"communicator\"", "mpi"});
  }
}

TEST_F(UnderMpirun, one_process_needs_no_mpirun) {
  const Ran alone = train("--set communicator=mpi");
  EXPECT_EQ(alone.code, 0) << alone.output;
}

TEST_F(UnderMpirun, two_runs_at_once_on_one_host_do_not_meet) {
  Background first = start_mpi(2, "first", "40"), second = start_mpi(2, "second", "60");
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_EQ(second.wait(), 0) << second.output();
  EXPECT_EQ(computed("first").size(), 40u);
  EXPECT_EQ(computed("second").size(), 60u);
}

TEST_F(UnderMpirun, an_mpi_that_does_not_end_is_left_with_the_exit_code_of_the_run) {
  const Ran ran = run_that_hangs_at_its_end(0, "1.5");
  expect_says(ran.output, {"final weights in ", "MPI_Finalize did not return within 1.5 s, though every rank is done",
                           "with its own exit code 0"});
}

// Rank 1 is done four seconds before rank 0, which still gives its weights their name, and leaves only after that.
TEST_F(UnderMpirun, an_mpi_that_does_not_end_is_left_only_once_rank_0_has_written) {
  const Ran ran = run_that_hangs_at_its_end(1, "1.5", "WRITE_S=4");
  expect_says(ran.output, {"final weights in ", "MPI_Finalize did not return within 1.5 s, though every rank is done"});
}

// MPI itself starts once per rank of mpirun: only the last run may choose it.
TEST_F(UnderMpirun, a_script_between_mpirun_and_the_program_may_start_runs_one_after_the_other) {
  write("both.sh", concat("for name in local mpi; do ", program(), " train ", path("tiny.json"),
                          " --set communicator=$name --set output_dir=$name || exit 1; done\n"));
  const Ran both = run_shell("cd " + folder() + " && " + mpirun(2) + "sh both.sh");
  EXPECT_EQ(both.code, 0) << both.output;
  EXPECT_EQ(computed("local").size(), 5u);
  EXPECT_EQ(computed("local"), computed("mpi"));
}

TEST_F(UnderMpirun, a_rank_that_fails_ends_all_with_its_exit_code_and_reason) {
  std::filesystem::create_directories(path("run"));
  write("run/metrics.jsonl", "{}");
  const Ran taken = run_mpi(2, path("tiny.json"));  // rank 0 finds the folder taken, before any collective
  EXPECT_NE(taken.code, 0) << taken.output;
  expect_says(taken.output, {"output_dir"});
  const Ran numeric =
      run_mpi(2, path("tiny.json") + " --set output_dir=inf --set optimizer.lr=1e30 --set train_steps=50");
  EXPECT_EQ(numeric.code, 7) << numeric.output;
}

TEST_F(UnderMpirun, ranks_meet_in_a_folder_of_their_user_alone_and_leave_nothing_there) {
  const std::string runtime = path("runtime");
  std::filesystem::create_directory(runtime);
  chmod(runtime.c_str(), 0700);
  const Ran ran = run_mpi(2, path("tiny.json"), "XDG_RUNTIME_DIR=" + runtime);
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_EQ(std::filesystem::status(runtime + "/drivetrain").permissions(), std::filesystem::perms::owner_all);
  EXPECT_TRUE(std::filesystem::is_empty(runtime + "/drivetrain"));
  chmod((runtime + "/drivetrain").c_str(), 0777);
  const Ran open = run_mpi(2, path("tiny.json") + " --set output_dir=open", "XDG_RUNTIME_DIR=" + runtime);
  EXPECT_NE(open.code, 0) << open.output;
  expect_says(open.output,
              {"the ranks cannot meet in " + runtime + "/drivetrain", "can be used by others", "chmod 700"});
}

TEST_F(UnderMpirun, other_starts_are_refused_with_the_right_one) {
  const Ran launched = launch(2, "--set communicator=mpi");
  EXPECT_EQ(launched.code, 2) << launched.output;
  expect_says(launched.output, {"communicator/mpi: this process is rank ", "and MPI calls it rank 0 of 1",
                                "mpirun -n 2 drivetrain train CONFIG"});
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(UnderMpirun, several_hosts_need_the_name_of_rank_0s) {
  expect_refused("train " + path("tiny.json") + " --set communicator=mpi", 2, {"MASTER_ADDR is not set: with 4 ranks"},
                 "PMI_RANK=0 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2");
}

TEST_F(UnderMpirun, no_mpi_is_loaded_by_runs_that_do_not_choose_it) {
  const auto loads_mpi = [&](const std::string& more) {
    const Ran ran = train(more, "LD_DEBUG=files");
    EXPECT_EQ(ran.code, 0);
    return ran.output.find("libmpi") != std::string::npos;
  };
  EXPECT_FALSE(loads_mpi("--set output_dir=local"));
  EXPECT_TRUE(loads_mpi("--set output_dir=mpi --set communicator=mpi"));
}

TEST_F(UnderMpirun, a_killed_rank_ends_all_and_leaves_nothing) {
  Background run = start_mpi(4, "run", "100000000");
  ASSERT_TRUE(run.wait_for_file(path("run/metrics.jsonl"))) << run.output();
  const std::vector<int> ranks = rank_processes();
  ASSERT_EQ(ranks.size(), 4u);
  ASSERT_EQ(kill(ranks[1], SIGKILL), 0);
  EXPECT_GT(run.wait(), 0) << run.output();
  EXPECT_TRUE(eventually([&] { return rank_processes().empty(); }));
  expect_nothing_half_written();
}

TEST_F(UnderMpirun, a_signal_to_mpirun_ends_the_run_after_its_step_with_final_weights) {
  Background run = start_mpi(2, "run", "100000000");
  ASSERT_TRUE(run.wait_for_file(path("run/metrics.jsonl"))) << run.output();
  run.signal(SIGTERM);
  // Every rank returns 143; MPICH's mpirun sometimes returns 0 all the same.
  const int code = run.wait();
  EXPECT_TRUE(code == 0 || code == 128 + SIGTERM) << code << "\n" << run.output();
  EXPECT_TRUE(eventually([&] { return rank_processes().empty(); }));
  EXPECT_FALSE(final_weights("run").empty());
  expect_nothing_half_written();
}

}  // namespace
}  // namespace drivetrain::test
