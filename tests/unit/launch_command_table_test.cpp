// The table of commands: it is whole, it does not contradict itself, and what is made of it works in a real shell.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>

#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/examples.h"
#include "cli/help.h"
#include "cli/parse.h"
#include "support/run_program.h"

namespace drivetrain::cli {
namespace {

using Words = std::vector<std::string>;

TEST(CommandTable, every_command_of_the_contract_is_there) {
  for (const char* name : {"train",
                           "launch",
                           "inspect",
                           "generate",
                           "config check",
                           "config explain",
                           "config schema",
                           "config resolve",
                           "doctor",
                           "new-plugin",
                           "conformance",
                           "bench step",
                           "bench collectives",
                           "bench optimizer",
                           "bench attention",
                           "bench startup",
                           "bench rendezvous",
                           "bench data",
                           "bench hardware",
                           "checkpoint list",
                           "checkpoint verify",
                           "checkpoint show",
                           "checkpoint diff",
                           "checkpoint average",
                           "checkpoint convert",
                           "data",
                           "evaluate",
                           "plan",
                           "study",
                           "flight",
                           "agent"})
    EXPECT_NE(find_command(name), nullptr) << name;
}

TEST(CommandTable, every_command_and_option_has_one_line_of_help) {
  for (const Command& command : kCommands) {
    EXPECT_FALSE(command.summary.empty()) << command.name;
    for (const Option& option : command.options) {
      EXPECT_FALSE(option.help.empty()) << command.name << " " << option.name;
      EXPECT_EQ(option.help.find('\n'), std::string::npos) << option.name;
      EXPECT_EQ(option.value.empty(), option.takes == Takes::nothing) << command.name << " " << option.name;
      EXPECT_NE(command_help(command).find(option.name), std::string::npos) << command.name << " " << option.name;
    }
  }
}

TEST(CommandTable, help_has_every_command_in_one_group_and_examples_are_accepted) {
  std::map<std::string, int> grouped;
  for (const Group& group : kGroups) {
    for (const std::string& name : split(group.commands, ' ')) ++grouped[name];
    EXPECT_NE(program_help().find(example_of(*find_command(group.example))), std::string::npos) << group.title;
  }
  for (const Command* command : without_verbs({})) EXPECT_EQ(grouped[std::string(command->name)], 1) << command->name;
  EXPECT_EQ(grouped.size(), without_verbs({}).size());
  for (const Example& one : kExamples) EXPECT_NE(find_command(one.command), nullptr) << one.command;
  for (const Command& command : kCommands) {
    if (!verbs_of(command).empty()) continue;
    EXPECT_NE(command_help(command).find("example: " + example_of(command) + "\n"), std::string::npos) << command.name;
    // As the shell gives the words: one in quotes is a word of its own.
    Words words;
    bool quoted = false;
    for (const std::string& part : split(example_of(command), ' ')) {
      quoted ? void(words.back() += " " + part) : words.push_back(part);
      quoted ^= std::count(part.begin(), part.end(), '"') % 2 == 1;
    }
    words.erase(words.begin());
    EXPECT_NO_THROW(parse(words)) << example_of(command);
    for (const std::string& word : words) {
      const bool is_ours = word.starts_with("configs/");
      EXPECT_TRUE(!is_ours || std::filesystem::exists(DRIVETRAIN_SOURCE_DIR "/" + word)) << example_of(command);
    }
  }
}

TEST(CommandTable, errors_have_colour_on_terminals_alone_and_not_with_no_color) {
  const auto said = [](const std::string& before) {
    const std::string command = before + " " + test::program() + " train";
    int terminal = -1;
    const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
    if (pid == 0) execl("/bin/sh", "sh", "-c", command.c_str(), nullptr), _exit(127);
    std::string text;
    char part[4096];
    for (ssize_t n; (n = read(terminal, part, sizeof part)) > 0;) text.append(part, static_cast<size_t>(n));
    close(terminal);
    waitpid(pid, nullptr, 0);
    return text;
  };
  const std::string red = "\033[31mdrivetrain: error:\033[0m train: ";
  EXPECT_NE(said("env -u NO_COLOR TERM=xterm").find(red), std::string::npos) << said("env -u NO_COLOR TERM=xterm");
  for (const char* plain : {"env NO_COLOR=1 TERM=xterm", "env -u NO_COLOR TERM=dumb"}) {
    EXPECT_EQ(said(plain).find('\033'), std::string::npos) << plain;
    EXPECT_NE(said(plain).find("drivetrain: error: train: "), std::string::npos) << said(plain);
  }
  EXPECT_EQ(test::run_shell("env -u NO_COLOR " + test::program() + " train 2>&1").output.find('\033'),
            std::string::npos);
}

TEST(CommandTable, no_command_has_an_option_twice_and_what_a_row_names_is_there) {
  for (const Command& command : kCommands) {
    std::set<std::string_view> names;
    const std::vector<Option> options = options_of(command);
    for (const Option& option : options)
      for (const std::string_view name : {option.name, option.alias})
        EXPECT_TRUE(name.empty() || names.insert(name).second) << command.name << " " << name;
    for (const Option& option : options)
      for (const std::string_view name : {option.needs, option.excludes})
        EXPECT_TRUE(name.empty() || names.count(name)) << command.name << " " << option.name << ": " << name;
  }
}

// `bench --seq 8 attention`: before the verb is known, it must be clear what is a value.
TEST(CommandTable, options_of_one_name_agree_within_the_verbs_of_a_command) {
  for (const Command& command : kCommands)
    for (const Option& option : options_of(command))
      for (const Command* one : verbs_of(command)) {
        const Option* const same = find_option(*one, option.name);
        EXPECT_TRUE(!same || same->takes == option.takes) << one->name << " " << option.name;
      }
}

// Their values are checked before it is known what the ranks run.
TEST(CommandTable, options_of_one_name_agree_under_launch) {
  for (const Option& option : options_of(*find_command("launch")))
    for (const Command& other : kCommands) {
      const Option* const same =
          other.under_launch || other.name == "train" ? find_option(other, option.name) : nullptr;
      if (!same || same->alone) continue;
      EXPECT_EQ(same->takes, option.takes) << other.name << " " << option.name;
      EXPECT_EQ(same->choices, option.choices) << other.name << " " << option.name;
      EXPECT_EQ(same->least, option.least) << other.name << " " << option.name;
    }
}

TEST(CommandTable, launch_offers_the_benchmarks_that_it_starts) {
  Words names;
  for (const Command& command : kCommands)
    if (command.under_launch) names.emplace_back(verb(command));
  EXPECT_EQ(split(find_option(*find_command("launch"), "--bench")->choices, '|'), names);
}

TEST(CommandTable, defaults_are_accepted) {
  for (const Command& command : kCommands) {
    for (const Option& option : command.options) {
      if (option.otherwise.empty()) continue;
      Words words = split(command.name, ' ');
      for (size_t i = 0; i < command.least; ++i) words.emplace_back("word");
      for (const Option& other : command.options)
        if (other.required) words.insert(words.end(), {std::string(other.name), "x"});
      words.insert(words.end(), {std::string(option.name), std::string(option.otherwise)});
      EXPECT_NO_THROW(parse(words)) << command.name << " " << option.name;
    }
  }
}

TEST(CommandTable, code_cannot_read_an_option_that_its_command_does_not_have) {
  const Arguments arguments = parse({"inspect"});
  EXPECT_FALSE(arguments.has("--json"));
  EXPECT_THROW(arguments.has("--prompt"), std::logic_error);
  EXPECT_THROW(arguments.all("--set"), std::logic_error);
  // Nor one that no command has: arguments.has("--sett") does not compile.
  EXPECT_TRUE(any_command_has_option("--set"));
  EXPECT_FALSE(any_command_has_option("--sett"));
}

TEST(CommandTable, a_default_stands_in_one_place) {
  const Arguments arguments = parse({"bench", "context", "--heads", "3"});
  EXPECT_EQ(arguments.whole("--heads"), 3);
  EXPECT_EQ(arguments.whole("--seq"), 4096);
  EXPECT_EQ(arguments.whole("--groups", 3), 3);
  EXPECT_THROW(arguments.whole("--seq", 1), std::logic_error);
  EXPECT_THROW(arguments.whole("--groups"), std::logic_error);
  EXPECT_EQ(parse({"generate", "f", "--prompt=x"}).real("--temperature"), 0.8);
}

// What bash offers behind `line`, whose last word is being typed: one candidate per line.
Words completed(const Words& line, const std::string& folder = ".") {
  const test::TempFolder scratch;
  std::ofstream(scratch.path("script")) << bash_completion();
  std::string words;
  for (const std::string& word : line) words += " '" + word + "'";
  std::ofstream(scratch.path("ask")) << "source '" + scratch.path("script") + "'\ncd '" + folder +
                                            "'\nCOMP_WORDS=(drivetrain" + words +
                                            ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                                            "$(complete -p drivetrain | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n"
                                            "printf '%s\\n' \"${COMPREPLY[@]}\"\n";
  const test::Ran ran = test::run_shell("bash --norc --noprofile '" + scratch.path("ask") + "'");
  EXPECT_EQ(ran.code, 0) << ran.output;
  Words list = split(ran.output, '\n');
  std::sort(list.begin(), list.end());
  return list;
}

TEST(Completion, bash_offers_commands_verbs_and_options) {
  const Words commands = completed({""});
  for (const char* name : {"train", "launch", "bench", "completion", "plan"})
    EXPECT_TRUE(std::count(commands.begin(), commands.end(), name)) << name;
  EXPECT_EQ(completed({"tr"}), Words{"train"});
  EXPECT_EQ(completed({"config", ""}), (Words{"check", "diff", "explain", "resolve", "schema"}));
  EXPECT_EQ(completed({"bench", "st"}), (Words{"startup", "step"}));
  EXPECT_EQ(completed({"train", "a.json", "--p"}), (Words{"--plan", "--plugin-path"}));
  EXPECT_EQ(completed({"bench", "context", "--he"}), (Words{"--head-size", "--heads", "--help"}));
  EXPECT_EQ(completed({"launch", "-n", "2", "--commu"}), Words{"--communicator"});
  EXPECT_EQ(completed({"help", "gen"}), Words{"generate"});
}

TEST(Completion, bash_offers_values_that_are_a_fixed_set) {
  EXPECT_EQ(completed({"launch", "--bench", ""}), (Words{"checkpoint", "collectives", "context", "hardware", "step"}));
  EXPECT_EQ(completed({"bench", "step", "--dtype", ""}), (Words{"bf16", "f32", "fp16"}));
  EXPECT_EQ(completed({"bench", "attention", "--dtype", "="}), (Words{"bf16", "f16", "f32"}));
  EXPECT_EQ(completed({"bench", "kernels", "--device", "=", "c"}), (Words{"cpu", "cuda"}));
  EXPECT_EQ(completed({"bench", "collectives", "--op", "all_reduce,b"}), Words{"all_reduce,broadcast"});
  EXPECT_EQ(completed({"completion", ""}), (Words{"bash", "zsh"}));
  EXPECT_EQ(completed({"generate", "--tokens", ""}), Words{});
}

TEST(Completion, bash_offers_files_and_folders_elsewhere) {
  const test::TempFolder place;
  std::ofstream(place.path("my run.json")) << "{}";
  std::filesystem::create_directory(place.path("my folder"));
  EXPECT_EQ(completed({"train", "m"}, place.path()), (Words{"my folder", "my run.json"}));
  EXPECT_EQ(completed({"bench", "step", "my r"}, place.path()), Words{"my run.json"});
  EXPECT_EQ(completed({"train", "--plugin-path", "m"}, place.path()), Words{"my folder"});
  EXPECT_EQ(completed({"train", "x.json", "--plan", "--svg", "my r"}, place.path()), Words{"my run.json"});
}

TEST(Completion, zsh_gets_every_command_option_and_set_of_values) {
  const std::string script = zsh_completion();
  EXPECT_EQ(script.rfind("#compdef drivetrain\n", 0), 0u);
  for (const Command& command : kCommands) {
    EXPECT_NE(script.find("'" + std::string(verb(command).empty() ? command.name : verb(command)) + ":"),
              std::string::npos)
        << command.name;
    for (const Option& option : command.options)
      EXPECT_NE(script.find(option.name), std::string::npos) << command.name << " " << option.name;
  }
  EXPECT_NE(script.find("(f32 bf16 fp16)"), std::string::npos);
}

TEST(Help, the_manual_page_has_every_command_and_option) {
  const std::string page = manual_page("1.2.3");
  EXPECT_EQ(page.rfind(".TH DRIVETRAIN 1", 0), 0u);
  for (const Command& command : kCommands) {
    if (command.name.find('-') != std::string::npos) continue;  // written with a backslash there
    EXPECT_NE(page.find(".SS drivetrain " + std::string(command.name) + "\n"), std::string::npos) << command.name;
  }
  EXPECT_NE(page.find("\\-\\-prompt TEXT"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain::cli
