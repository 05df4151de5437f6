// Command lines: what is read, what is handed on, and what a wrong one is told.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <thread>

#include "cli/commands.h"
#include "cli/parse.h"
#include "launch/request.h"
#include "support/typos.h"

namespace drivetrain::program {
namespace {

using Words = std::vector<std::string>;

cli::Arguments parsed(const std::string& command, const Words& words) {
  Words line = cli::split(command, ' ');
  line.insert(line.end(), words.begin(), words.end());
  return cli::parse(line);
}

std::string message(const std::string& command, const Words& words) {
  try {
    const cli::Arguments arguments = parsed(command, words);
    if (command == "launch") launch_request(arguments);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

#define EXPECT_SAYS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << text

TEST(CommandLine, options_may_stand_anywhere_and_are_handed_on_in_one_spelling) {
  const Words expected{"a.json", "--set", "x.y=[1, 2]", "--plan", "--set", "z=\"=\""};
  EXPECT_EQ(parsed("train", {"a.json", "--set", "x.y=[1, 2]", "--plan", "--set=z=\"=\""}).as_words(), expected);
  EXPECT_EQ(parsed("train", {"--set=x.y=[1, 2]", "--plan", "--set", "z=\"=\"", "a.json"}).as_words(), expected);
}

TEST(CommandLine, dashes_and_underscores_in_option_names_are_the_same) {
  EXPECT_EQ(parsed("train", {"--plugin_path", "p", "a.json"}).as_words(), (Words{"a.json", "--plugin-path", "p"}));
}

TEST(CommandLine, a_value_may_look_like_an_option_or_be_empty) {
  EXPECT_EQ(parsed("generate", {"run", "--prompt", "--tokens", "--tokens=3"}).as_words(),
            (Words{"run", "--prompt", "--tokens", "--tokens", "3"}));
  EXPECT_EQ(parsed("generate", {"run", "--prompt="}).as_words(), (Words{"run", "--prompt", ""}));
}

TEST(CommandLine, after_two_dashes_a_file_may_be_called_like_an_option) {
  EXPECT_EQ(parsed("train", {"--plan", "--", "--odd.json"}).as_words(), (Words{"./--odd.json", "--plan"}));
}

TEST(CommandLine, help_is_found_among_anything_but_not_after_two_dashes) {
  EXPECT_TRUE(cli::asks_for_help({"train", "--nonsense", "--help"}));
  EXPECT_FALSE(cli::asks_for_help({"train", "--", "--help"}));
}

TEST(CommandLine, mistakes_are_named_with_what_would_be_right) {
  EXPECT_SAYS(message("trian", {}), "did you mean \"train\"?");
  EXPECT_SAYS(message("train", {}), "usage: drivetrain train CONFIG");
  EXPECT_SAYS(message("train", {"a", "b"}), "\"b\" was not expected");
  EXPECT_SAYS(message("train", {"a", "--st", "x=1"}), "did you mean \"--set\"?");
  EXPECT_SAYS(message("train", {"a", "--set"}), "--set wants KEY=VALUE after it");
  EXPECT_SAYS(message("train", {"a", "--plan=1"}), "--plan takes no value");
  EXPECT_SAYS(message("generate", {"folder"}), "--prompt TEXT is missing");
  EXPECT_SAYS(message("generate", {"folder", "--prmpt", "x"}), "did you mean \"--prompt\"?");
  EXPECT_SAYS(message("launch", {"-np", "2", "a"}), "ranks per host are -n N");
  EXPECT_SAYS(message("config", {"-n", "2", "chekc", "a"}), "did you mean \"check\"?");
}

// Every option of every command, whatever it takes.
TEST(CommandLine, a_second_value_of_an_option_that_takes_one_is_refused_with_both) {
  int refused = 0, taken = 0;
  for (const cli::Command& command : cli::kCommands) {
    if (!cli::verbs_of(command).empty()) continue;
    const Words name = cli::split(command.name, ' ');
    for (const cli::Option& option : cli::options_of(command)) {
      const std::string of(option.name);
      const bool flag = option.takes == cli::Takes::nothing;
      Words line = flag ? Words{of, of} : Words{of, "aa", of, "bb"};
      line.insert(line.begin(), name.begin() + 1, name.end());
      const std::string told = message(name[0], line), twice = of + " is given twice, as \"aa\" and \"bb\"";
      EXPECT_EQ(told.find(twice) != std::string::npos, !flag && !option.repeats) << command.name << told;
      (told.find(twice) != std::string::npos ? refused : taken)++;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(taken, 0);
  const char* const config = "/proc/self/status";
  EXPECT_SAYS(message("plan", {config, "--hardware", "h100", "--hardware=h200"}),
              "--hardware is given twice, as \"h100\" and \"h200\", and takes one value: leave out one of them");
  EXPECT_SAYS(message("launch", {"-n", "2", config, "--num_gpus=3"}), "-n is given twice, as \"2\" and \"3\"");
  EXPECT_SAYS(message("launch", {"--bench", "context", "--seq", "8", "--seq=9"}),
              "--seq is given twice, as \"8\" and \"9\"");
  EXPECT_EQ(message("launch", {"-n", "2", config, "--num_gpus=2", "--set", "a=1", "--set", "a=2"}), "no error");
}

TEST(CommandLine, a_script_is_told_with_the_line_that_trains) {
  for (const Words& line : {Words{"--num_gpus", "8", "train.py", "--deepspeed", "--deepspeed_config", "ds.json"},
                            Words{"--num_gpus=8", "src/train.py", "--deepspeed=ds.json", "--lr", "1e-4"},
                            Words{"-n", "8", "train.py", "--deepspeed", "ds.json", "--local_rank=0"}})
    EXPECT_SAYS(message("launch", line), "is a script, and drivetrain starts ranks of its own");
  EXPECT_SAYS(message("launch", {"--num_gpus", "8", "train.py", "--deepspeed", "--deepspeed-config", "ds.json"}),
              "drivetrain launch -n 8 run.json --deepspeed ds.json");
  EXPECT_SAYS(message("launch", {"train.py"}), "drivetrain launch -n N run.json --deepspeed ds_config.json");
  EXPECT_SAYS(message("train", {"train.py"}), "is a script");
  EXPECT_EQ(message("train", {"run.json", "--set", "dataset.params.files=src/train.py"}), "no error");
}

TEST(CommandLine, of_400_mistyped_commands_and_options_at_least_97_in_100_get_the_right_name) {
  std::vector<std::pair<std::string, std::string>> options;  // command, name
  for (const cli::Command& command : cli::kCommands) {
    if (cli::verb(command).empty()) options.emplace_back("", command.name);
    if (!cli::verbs_of(command).empty()) continue;
    for (const cli::Option& option : cli::options_of(command))
      if (option.name.starts_with("--")) options.emplace_back(command.name, option.name);
  }
  test::FixedNumbers numbers;
  int tried = 0, right = 0;
  while (tried < 400) {
    const auto& [command, name] = options[numbers.below(options.size())];
    const std::string word = command.empty() ? name : name.substr(2);
    const auto typos = test::typos_of(word);
    const std::string typo = typos[numbers.below(typos.size())];
    const std::string told = command.empty() ? message(typo, {}) : message(command, {"a.json", "--" + typo});
    if (told.find("known here") == std::string::npos) continue;  // it is the name of another
    ++tried;
    const std::string answer = test::suggested(told);
    right += answer == name;
    if (answer != name)
      std::printf("%s for %s %s: \"%s\"\n", typo.c_str(), command.c_str(), name.c_str(), answer.c_str());
  }
  std::printf("%d of %d right\n", right, tried);
  EXPECT_GE(right, 388);
}

TEST(CommandLine, a_verb_is_found_between_options) {
  const cli::Arguments arguments = parsed("bench", {"--steps", "3", "step", "--json", "a.json"});
  EXPECT_EQ(arguments.command().name, "bench step");
  EXPECT_EQ(arguments.plain(), Words{"a.json"});
  EXPECT_EQ(arguments.whole("--steps"), 3);
  EXPECT_TRUE(arguments.has("--json"));
}

TEST(CommandLine, launch_takes_the_options_of_what_the_ranks_run_and_no_others) {
  const LaunchRequest request =
      launch_request(parsed("launch", {"--bench", "context", "-n", "3", "--seq=8", "--json", "--attention", "x"}));
  EXPECT_EQ(Words(request.command.begin() + 1, request.command.end()),
            (Words{"bench", "context", "--seq", "8", "--json", "--attention", "x"}));
  EXPECT_SAYS(message("launch", {"/proc/self/status", "--seq", "8"}), "--seq goes with --bench context");
  EXPECT_SAYS(message("launch", {"/proc/self/status", "--json"}), "--json goes with --bench step");
  EXPECT_SAYS(message("launch", {"/proc/self/status", "--json"}), "--plan");
  EXPECT_EQ(message("launch", {"/proc/self/status", "--json", "--plan"}), "no error");
  EXPECT_SAYS(message("launch", {"/proc/self/status", "--layers", "2"}), "`drivetrain bench step` has it");
}

TEST(CommandLine, what_was_once_of_a_later_version_is_taken) {
  EXPECT_EQ(message("plan", {"--table", "all"}), "no error");
  EXPECT_EQ(message("train", {"/proc/self/status", "--resume", "auto"}), "no error");
  EXPECT_EQ(message("launch", {"/proc/self/status", "--resume=never"}), "no error");
}

TEST(CommandLine, launcher_options_of_others_say_what_to_do) {
  for (const char* option : {"--module", "--no_python", "--autotuning", "--venv_script"})
    EXPECT_SAYS(message("launch", {option, "x", "a.json"}), "not in this version");
  EXPECT_SAYS(message("launch", {"--nproc_per_node=2", "a.json"}), "ranks per host are -n N");
  EXPECT_SAYS(message("launch", {"--local_rank", "0", "a.json"}), "drivetrain launch -n 2 CONFIG");
}

TEST(CommandLine, launch_hands_on_everything_but_the_number_of_ranks) {
  const char* const config = "/proc/self/status";  // any readable file
  for (const Words& words : {Words{"-n", "3", config, "--set", "a=1"}, Words{"--set=a=1", config, "--num_gpus=3"}}) {
    const LaunchRequest request = launch_request(parsed("launch", words));
    EXPECT_EQ(request.ranks, 3);
    EXPECT_EQ(Words(request.command.begin() + 1, request.command.end()), (Words{"train", config, "--set", "a=1"}));
    EXPECT_FALSE(request.only_rank_0);
  }
  const Words layered = launch_request(parsed("launch", {config, "--deepspeed_config", config})).command;
  EXPECT_EQ(Words(layered.begin() + 1, layered.end()), (Words{"train", config, "--deepspeed", config}));
  EXPECT_THROW(launch_request(parsed("launch", {"--deepspeed", config})), UsageError);
  EXPECT_EQ(launch_request(parsed("launch", {config})).ranks, 1);
  EXPECT_TRUE(launch_request(parsed("launch", {config, "--plan"})).only_rank_0);
}

TEST(CommandLine, launch_checks_the_number_of_ranks_and_the_config_before_it_starts_any) {
  for (const char* n : {"0", "-1", "two", "", "2x", "100000"})
    EXPECT_SAYS(message("launch", {"-n", n, "/proc/self/status"}),
                "number of ranks from 1 to 4096, got \"" + std::string(n) + "\"");
  EXPECT_SAYS(message("launch", {"missing.json"}), "cannot read the config file missing.json");
}

TEST(CommandLine, restarts_and_fewer_ranks_are_the_launchers_own_options) {
  const char* const config = "/proc/self/status";
  const auto request = [&](const Words& words) { return launch_request(parsed("launch", words)); };
  const LaunchRequest plain = request({config, "--resume", "step-4"});
  EXPECT_EQ(plain.max_restarts, 0);
  EXPECT_EQ(plain.least_ranks, 0);
  EXPECT_EQ(plain.resume, "step-4");  // the launcher adds it to each start
  const LaunchRequest elastic = request({"--max_restarts=3", config, "--elastic", "2:4"});
  EXPECT_EQ(Words(elastic.command.begin() + 1, elastic.command.end()), (Words{"train", config}));
  EXPECT_EQ(elastic.max_restarts, 3);
  EXPECT_EQ(elastic.ranks, 4);
  EXPECT_EQ(elastic.least_ranks, 2);
  EXPECT_EQ(elastic.most_ranks, 4);
  EXPECT_EQ(request({"--max-restarts", "1", config, "--elastic", "2:4", "-n", "3"}).ranks, 3);
}

TEST(CommandLine, what_restarts_cannot_be_is_told_before_anything_starts) {
  const auto told = [](Words words) {
    words.insert(words.end(), "/proc/self/status");
    return message("launch", words);
  };
  for (const char* n : {"-1", "x", "1.5", ""})
    EXPECT_SAYS(told({"--max-restarts", n}), "--max-restarts wants a whole number from 0");
  for (const char* range : {"3:2", "0:2", "2", ":2", "2:", "2:3:4", "2:99999", "a:b", "2-4", ""})
    EXPECT_SAYS(told({"--max-restarts=1", "--elastic", range}), "--elastic wants MIN:MAX, numbers of ranks from 1");
  EXPECT_SAYS(told({"--elastic", "2:4"}), "--elastic goes with --max-restarts");
  EXPECT_SAYS(told({"--max-restarts=1", "--elastic", "2:4", "-n", "5"}), "-n 5 is not within --elastic 2:4");
  EXPECT_SAYS(told({"--max-restarts=1", "--plan"}), "--plan starts no training");
  EXPECT_SAYS(told({"--max-restarts=1", "--bench", "step"}), "--bench and --max-restarts exclude each other");
  EXPECT_SAYS(told({"--max-restart", "1"}), "did you mean \"--max-restarts\"?");
}

class ConfigDocumentTest : public testing::Test {
 protected:
  ~ConfigDocumentTest() override { std::remove(fifo_.c_str()); }
  static std::string text_of(const ConfigDocument& document) {
    std::string text(100, ' ');
    const ssize_t n = pread(document.file.get(), text.data(), text.size(), 0);
    return text.substr(0, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  }
  static std::string refusal(const std::string& path) {
    try {
      read_config_once(path, 0.2);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "no error";
  }
  const std::string fifo_ = testing::TempDir() + "/launch_config_" + std::to_string(getpid());
};

TEST_F(ConfigDocumentTest, a_regular_file_is_left_to_the_ranks) {
  EXPECT_LT(read_config_once("/proc/self/exe").file.get(), 0);
  EXPECT_LT(read_config_once("/no/such/file").file.get(), 0);
  EXPECT_EQ(read_config_once("/proc/self/exe").path, "/proc/self/exe");
}

TEST_F(ConfigDocumentTest, what_can_be_read_once_is_kept_under_the_number_that_was_typed) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "{\"a\": 1}", 8), 8);
  close(ends[1]);
  const std::string path = "/dev/fd/" + std::to_string(ends[0]);
  const ConfigDocument document = read_config_once(path);
  EXPECT_EQ(document.path, path);
  EXPECT_EQ(document.number, ends[0]);
  EXPECT_EQ(text_of(document), "{\"a\": 1}");
  EXPECT_LT(write(document.file.get(), "x", 1), 0) << "ranks all read the same";
  close(ends[0]);
}

TEST_F(ConfigDocumentTest, a_named_pipe_gets_a_number) {
  ASSERT_EQ(mkfifo(fifo_.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(fifo_) << "{}"; });
  const ConfigDocument document = read_config_once(fifo_);
  writer.join();
  EXPECT_EQ(text_of(document), "{}");
  EXPECT_EQ(document.path, "/dev/fd/" + std::to_string(document.file.get()));
}

TEST_F(ConfigDocumentTest, nothing_and_too_much_are_refused) {
  ASSERT_EQ(mkfifo(fifo_.c_str(), 0600), 0);
  EXPECT_SAYS(refusal(fifo_), fifo_ + " is no regular file and gave 0 bytes and no end within 0.2 s");
  EXPECT_SAYS(refusal("/dev/zero"), "/dev/zero is a device; name a file or a pipe");
  const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  EXPECT_SAYS(refusal("/dev/fd/" + std::to_string(zero)), "has more than 64 MB");
  close(zero);
}

}  // namespace
}  // namespace drivetrain::program
