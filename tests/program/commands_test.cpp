// The command line: help that needs no LibTorch, usage errors, plans, and what `generate` refuses.
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

class Commands : public ProgramTest {};

TEST_F(Commands, help_version_and_usage_errors_load_neither_libtorch_nor_the_library) {
  const std::string help[] = {"--help", "--version", "train --help", "launch --help", "generate --help"};
  const std::string wrong[] = {"", "trian", "train", "train --sett x", "train a b", "generate x", "launch -n 2"};
  for (const std::string& words : help) EXPECT_EQ(run(words).code, 0) << words;
  for (const std::string& words : wrong) EXPECT_EQ(run(words).code, 2) << words;
  for (const std::string& words : {help[0], help[1], help[2], wrong[1], wrong[3]}) {
    const Ran ran = run(words, "LD_DEBUG=files");
    expect_says(ran.output, {"libstdc++"});  // the linker does talk
    for (const char* library : {"libtorch", "libc10", "libdrivetrain.so"})
      EXPECT_EQ(ran.output.find(library), std::string::npos) << words;
  }
}

TEST_F(Commands, help_names_every_command_and_exit_code) {
  expect_says(run("--help").output,
              {"train", "launch", "inspect", "config", "generate", "bench", "Exit codes", "7 numeric"});
  expect_says(run("--help").output, {"DRIVETRAIN_RUN_TOKEN"});
  EXPECT_EQ(run("help").output, run("--help").output);
  for (const std::string command : {"train", "launch", "bench", "bench step", "config check"}) {
    EXPECT_EQ(run("help " + command).output, run(command + " --help").output);
    expect_says(run("help " + command).output, {"usage: drivetrain " + command});
  }
  expect_says(run("train --help").output, {"usage: drivetrain train CONFIG", "--set KEY=VALUE", "--plan"});
}

TEST_F(Commands, usage_errors_say_what_was_wrong_and_the_usage) {
  expect_refused("", 2, {"drivetrain --help"});
  expect_refused("trian", 2, {"no command \"trian\"", "did you mean \"train\"?"});
  expect_refused("train", 2, {"something is missing", "usage: drivetrain train CONFIG"});
  expect_refused("train tiny.json --sett a=1", 2, {"--sett", "did you mean \"--set\"?", "usage: drivetrain train"});
  expect_refused("train tiny.json other.json", 2, {"\"other.json\" was not expected", "usage: drivetrain train"});
  expect_refused("train tiny.json --json", 2, {"--json", "--plan"});
  expect_refused("inspect --verbose", 2, {"--verbose", "usage: drivetrain inspect"});
  expect_refused("inspect --json --schema", 2, {"--json", "--schema", "exclude"});
  expect_refused("help trian", 2, {"\"trian\"", "did you mean \"train\"?"});
  expect_refused("completion fish", 2, {"bash or zsh", "\"fish\""});
  expect_refused("train tiny.json --set", 2, {"--set wants KEY=VALUE after it"});
  expect_refused("bench step --resume auto", 2, {"--resume", "always begins anew"});
  expect_refused("launch -n x tiny.json", 2, {"-n wants a number of ranks", "\"x\""});
  expect_refused("launch -n 0 tiny.json", 2, {"-n wants a number of ranks from 1", "\"0\""});
  expect_refused("config chekc tiny.json", 2, {"config does not know \"chekc\"", "usage: drivetrain config"});
  expect_refused("config check tiny.json -n two", 2, {"-n wants a number of ranks", "\"two\""});
  expect_refused("plan", 2, {"needs a config, or --table NAME", "xtuner_speed"});
}

TEST_F(Commands, a_plan_shows_mesh_plugins_and_memory_and_starts_nothing) {
  for (const std::string command : {"train ", "launch -n 4 "}) {
    const Ran ran = run(command + path("tiny.json") + " --plan");
    EXPECT_EQ(ran.code, 0) << ran.output;
    const std::string ranks = command == "train " ? "1" : "4";
    expect_says(ran.output, {"4592 parameters, " + ranks + " rank", "batch 4 = ", "plugins: communicator/local",
                             "mesh, fastest axis first: dp " + ranks, "hooks nest", "memory per rank"});
  }
  expect_refused("launch -n 3 " + path("tiny.json") + " --plan", 2, {"4 / 3 data-parallel ranks"});
  EXPECT_EQ(files(), std::set<std::string>{"tiny.json"});
}

TEST_F(Commands, a_plan_as_json_is_one_object_and_nothing_else) {
  for (const std::string command : {"train ", "launch -n 4 "}) {
    const Ran ran = run(command + path("tiny.json") + " --plan --json");
    ASSERT_EQ(ran.code, 0) << ran.output;
    const Value plan = parse_json(ran.output, "plan");
    EXPECT_EQ(plan.find("model")->find("parameters")->as_int(), 4592);
    EXPECT_EQ(plan.find("run")->find("world_size")->as_int(), command == "train " ? 1 : 4);
    EXPECT_EQ(plan.find("batch")->find("train_batch_size")->as_int(), 4);
    EXPECT_EQ(plan.find("mesh")->items().at(0).find("axis")->as_string(), "dp");
  }
  expect_refused("train " + path("tiny.json") + " --json", 2, {"--json", "--plan"});
}

TEST_F(Commands, a_result_that_cannot_be_printed_is_an_error) {
  const std::string config = path("tiny.json"),
                    library = DRIVETRAIN_BUILD_DIR "/lib/drivetrain/plugins/optimizer_adamw.so";
  for (const std::string& words :
       {"config resolve " + config, "config check " + config, std::string("inspect"), "inspect " + library,
        std::string("inspect optimizer/adamw --schema"), "train " + config + " --plan", std::string("--help"),
        std::string("--version"), std::string("train --help")})
    for (const char* place : {" > /dev/full", " >&-"}) {
      const Ran ran = run_shell("(cd " + folder() + " && " + program() + " " + words + place + ")");
      EXPECT_EQ(ran.code, 8) << words << place << ran.output;
      expect_says(ran.output, {"drivetrain: error: ", "cannot write to the standard output"});
    }
}

TEST_F(Commands, a_plan_is_drawn_into_what_there_is_and_a_device_stays_one) {
  std::filesystem::create_symlink("/dev/full", path("full"));
  std::filesystem::create_symlink("drawn.svg", path("link.svg"));
  const std::string plan = "train " + path("tiny.json") + " --plan --svg ";
  EXPECT_EQ(run(plan + "full").code, 8);
  EXPECT_TRUE(std::filesystem::is_symlink(path("full")) && std::filesystem::is_character_file("/dev/full"));
  EXPECT_EQ(run(plan + "link.svg").code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.svg")));
  expect_says(file_bytes(path("drawn.svg")), {"<svg", "</svg>"});
  EXPECT_EQ(run(plan + "/dev/stdout > both.txt").code, 0);
  expect_says(file_bytes(path("both.txt")), {"<svg", "</svg>", "memory per rank"});
}

TEST_F(Commands, generate_says_what_it_misses) {
  std::filesystem::create_directory(path("empty"));
  expect_refused("generate empty --prompt x", 2,
                 {"empty holds no model", "config.json", "run folder of a finished run"});
  expect_refused("generate nowhere --prompt x", 2, {"nowhere holds no model"});
  expect_refused("generate empty", 2, {"--prompt TEXT is missing", "usage: drivetrain generate FOLDER"});
  expect_refused("generate empty --prompt ''", 2, {"a prompt of at least one byte"});
  expect_refused("generate empty --prompt x --tokens 0", 2, {"--tokens wants", "at least 1", "\"0\""});
  expect_refused("generate empty --prompt x --temperature -1", 2, {"--temperature wants", "at least 0", "\"-1\""});
}

TEST_F(Commands, generate_refuses_a_vocabulary_that_is_not_of_bytes) {
  ASSERT_EQ(train().code, 0);
  expect_refused("generate run --prompt ab", 2, {"run has a vocabulary of 64 tokens", "--tokenizer FOLDER"});
}

TEST_F(Commands, generate_samples_from_a_run_folder_the_same_bytes_for_the_same_seed) {
  ASSERT_EQ(train("--set model.vocab_size=256").code, 0);
  const auto sample = [&](const std::string& options) {
    const Ran ran = run("generate run --prompt ab --tokens 30 " + options, "OMP_NUM_THREADS=1");
    EXPECT_EQ(ran.code, 0) << ran.output;
    const std::string said = "run names no tokenizer: tokens are taken for bytes\n";
    EXPECT_EQ(ran.output.substr(0, said.size() + 2), said + "ab");
    return ran.output.substr(said.size());
  };
  const std::string first = sample("--seed 5");
  EXPECT_EQ(first.size(), 33u);  // prompt, tokens, line end
  EXPECT_EQ(first, sample("--seed 5"));
  EXPECT_NE(first, sample("--seed 6"));
  EXPECT_EQ(sample("--temperature 0 --seed 1"), sample("--temperature 0 --seed 2"));
}

}  // namespace
}  // namespace drivetrain::test
