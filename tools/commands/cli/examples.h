// What help shows to begin with: the commands in groups, and one line to type for each command.
#pragma once

#include <string>
#include <string_view>

#include "cli/command.h"

namespace drivetrain::cli {

struct Group {
  std::string_view title;
  std::string_view commands;  // first words, separated by blanks
  std::string_view example;   // the command whose example stands for the group
};

inline constexpr Group kGroups[] = {
    {"train, and use what was trained", "launch train generate evaluate checkpoint", "launch"},
    {"before a run", "config plan data doctor", "plan"},
    {"measure and compare", "study bench", "study"},
    {"a run that hangs or died", "flight", "flight"},
    {"plugins", "inspect new-plugin conformance", "inspect"},
    {"the program itself", "help completion agent", "help"}};

struct Example {
  std::string_view command, words;
};

// Of commands that need words or options, or are better shown with some.
inline constexpr Example kExamples[] = {{"train", "configs/quickstart.json --plan"},
                                        {"launch", "-n 2 configs/quickstart.json"},
                                        {"inspect", "optimizer"},
                                        {"config check", "configs/quickstart.json"},
                                        {"config resolve", "configs/quickstart.json"},
                                        {"config explain", "train_batch_size configs/quickstart.json"},
                                        {"config diff", "configs/quickstart.json configs/3d.json"},
                                        {"generate", "runs/mine --prompt \"namespace at {\" --tokens 200"},
                                        {"evaluate", "runs/mine texts.txt"},
                                        {"checkpoint list", "runs/mine"},
                                        {"checkpoint verify", "runs/mine"},
                                        {"checkpoint show", "runs/mine newest"},
                                        {"checkpoint diff", "runs/mine runs/other"},
                                        {"checkpoint average", "runs/mine --last 5 --output runs/mean"},
                                        {"checkpoint convert", "runs/mine folder --to hf"},
                                        {"data prepare", "--input texts.jsonl --tokenizer bytes --output data/mine"},
                                        {"data show", "data/mine"},
                                        {"data verify", "data/mine"},
                                        {"bench data", "configs/quickstart.json"},
                                        {"bench hardware", "--output here.json"},
                                        {"doctor", "--config configs/quickstart.json"},
                                        {"flight", "runs/mine"},
                                        {"completion", "bash"},
                                        {"help", "launch"},
                                        {"new-plugin", "optimizer mine"},
                                        {"conformance", "build/lib/drivetrain/plugins/optimizer_mine.so"},
                                        {"plan", "configs/bench/gpt2_124m_gpu.json -n 8 --hardware h100"},
                                        {"study", "configs/studies/lr_width.json"}};

// "drivetrain launch -n 2 configs/quickstart.json"
inline std::string example_of(const Command& command) {
  std::string text = "drivetrain " + std::string(command.name);
  for (const Example& one : kExamples)
    if (one.command == command.name) text += " " + std::string(one.words);
  return text;
}

}  // namespace drivetrain::cli
