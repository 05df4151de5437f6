// What the tests of the program share: a scratch folder with a small config in it, runs of the program there, and the
// check that nothing is left behind.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/error.h>

#include "support/run_program.h"

namespace drivetrain::test {

// `parts` have to be in `text` in this order.
inline void expect_says(const std::string& text, const std::vector<std::string>& parts) {
  size_t at = 0;
  for (const std::string& part : parts) {
    const size_t found = text.find(part, at);
    if (found == std::string::npos) {
      ADD_FAILURE() << "wanted" << (text.find(part) == std::string::npos ? "" : " further down") << ": " << part
                    << "\nin:\n"
                    << text;
      return;
    }
    at = found + part.size();
  }
}

// Processes whose command line mentions `text`, this one left out.
inline std::vector<int> processes_with(const std::string& text) {
  std::vector<int> list;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || pid == getpid()) continue;
    try {
      if (file_bytes(entry.path() / "cmdline").find(text) != std::string::npos) list.push_back(pid);
    } catch (const std::ios_base::failure&) {  // it has ended meanwhile
    }
  }
  return list;
}

class ProgramTest : public testing::Test {
 protected:
  // Line numbers of this file appear in tests.
  static constexpr const char* kTiny = R"({
  "train_steps": 5,
  "threads": 1,
  "train_batch_size": 4,
  "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2,
            "vocab_size": 64, "max_position_embeddings": 16}},
  "dataset": {"type": "synthetic", "params": {"seq_length": 8}},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "checkpoint_policy": false,
  "output_dir": "run"
})";

  ProgramTest() { write("tiny.json", kTiny); }
  ~ProgramTest() override { EXPECT_TRUE(processes_with(folder()).empty()) << "a process is left"; }

  const std::string& folder() const { return temporary_.path(); }
  std::string path(const std::string& name) const { return folder() + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  // The config with one part of its text replaced.
  std::string tiny_with(const std::string& part, const std::string& replacement) const {
    std::string text = kTiny;
    EXPECT_EQ(text.find(part), text.rfind(part)) << part;
    return write("tiny.json", text.replace(text.find(part), part.size(), replacement));
  }

  // `environment`: "A=b C=d". The arguments are words of a shell; every command line names the folder, by which
  // processes left behind are found.
  Ran run(const std::string& arguments, const std::string& environment = "") const {
    return run_shell("cd " + folder() + " && env " + environment + " " + program() + " " + arguments);
  }
  Ran train(const std::string& arguments = "", const std::string& environment = "") const {
    return run("train " + path("tiny.json") + " " + arguments, environment);
  }
  Ran launch(int ranks, const std::string& arguments = "") const {
    return run("launch -n " + std::to_string(ranks) + " " + path("tiny.json") + " " + arguments);
  }

  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder()))
      names.insert(std::filesystem::relative(entry.path(), folder()).string());
    return names;
  }

  // Refused before anything was written: the exit code, the words of the message in their order, no new file, and no
  // half-telling of our own (a stack, an exception's type).
  void expect_refused(const std::string& command, int code, const std::vector<std::string>& parts,
                      const std::string& environment = "") const {
    const std::set<std::string> before = files();
    const Ran ran = run(command, environment);
    EXPECT_EQ(ran.code, code) << ran.output;
    expect_says(ran.output, parts);
    EXPECT_EQ(ran.output.find("internal error"), std::string::npos) << ran.output;
    EXPECT_EQ(ran.output.find("Exception raised from"), std::string::npos) << ran.output;
    EXPECT_EQ(files(), before);
  }
  void expect_train_refused(const std::string& arguments, int code, const std::vector<std::string>& parts) const {
    expect_refused("train " + path("tiny.json") + " " + arguments, code, parts);
  }

  // The figures of a run without those that tell time or memory.
  std::vector<std::string> curve(const std::string& run_folder) const {
    std::vector<std::string> lines;
    for (Value& line : read_metrics(path(run_folder))) {
      for (const char* key : {"step_s", "tokens_per_s", "tgs", "tflops", "peak_memory_bytes", "peak_reserved_bytes"})
        line.erase(key);
      lines.push_back(line.to_json());
    }
    return lines;
  }
  std::string final_weights(const std::string& run_folder) const {
    const std::string bytes = file_bytes(path(run_folder + "/final/model.safetensors"));
    EXPECT_FALSE(bytes.empty()) << run_folder;
    return bytes;
  }
  // Names in a run folder that a killed or failed writer might leave.
  void expect_nothing_half_written() const {
    for (const std::string& name : files()) {
      EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
      EXPECT_EQ(name.find(".unfinished"), std::string::npos) << name;
    }
  }

 private:
  const TempFolder temporary_;
};

}  // namespace drivetrain::test
