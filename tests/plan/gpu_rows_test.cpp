// Steps that were measured on a GPU, their times and memory, beside their plans by configs/hardware: FIGURES.md has the
// rows. And the longest sequence that README of configs names.
#include <cmath>
#include <map>
#include <sstream>

#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

const std::string kSource = DRIVETRAIN_SOURCE_DIR "/";
constexpr double kWithin = 0.08, kMemoryWithin = 0.01;

struct Run {
  std::string config, more, left_out;
};

constexpr const char
    *kHost = R"(--set 'zero_optimization={"stage": 2, "offload_optimizer": {"device": "cpu"}}' --set capture=false)",
    *kZero2 = R"(--set 'zero_optimization={"stage": 2}')";
std::string in_8_bits(const std::string& more) {
  return R"(--set bf16.enabled=false --set 'fp8={"enabled": true, )" + more + "}'";
}

// By the first cell of a row.
const std::map<std::string, Run>& runs() {
  static const std::string kAnotherHost = "another host than the file's updates the parameters",
                           kOther = "as another row, and no other plan";
  static const std::map<std::string, Run> all = {
      {"GPT-2 124M, 32 sequences of 1024, recorded", {"gpt2_124m_gpu", "", ""}},
      {"the same, not recorded", {"gpt2_124m_gpu", "--set capture=false", ""}},
      {"the same, GELU in products (`gelu_fusion`)", {"gpt2_124m_gpu", "--set fused_block.gelu_fusion=true", ""}},
      {"the same, 64 sequences", {"gpt2_124m_gpu", "--set train_micro_batch_size_per_gpu=64", ""}},
      {"the same, optimizer on the host", {"", "", kAnotherHost}},
      {"the same, ZeRO 2 on one rank, recorded", {"gpt2_124m_gpu", kZero2, ""}},
      {"the same, FlashAttention instead of cuDNN", {"", "", kOther}},
      {"7B shape (12 layers), four sequences of 4096", {"llama_7b_gpu", "", ""}},
      {"the same, one sequence per update", {"llama_7b_gpu", "--set train_micro_batch_size_per_gpu=1", ""}},
      {"the same, four sequences, 8 bits", {"", "", "by casts of LibTorch then, and by kernels of this tree since"}},
      {"the same, 8 bits, current scaling", {"llama_7b_gpu", in_8_bits(R"("recipe": "Float8CurrentScaling")"), ""}},
      {"the same, 8 bits, delayed scaling", {"llama_7b_gpu", in_8_bits(R"("recipe": "DelayedScaling")"), ""}},
      {"the same, 8 bits, delayed scaling, weights kept", {"llama_7b_gpu", in_8_bits(R"("keep_weights": true)"), ""}},
      {"the same, 8 bits, scales of blocks", {"llama_7b_gpu", in_8_bits(R"("recipe": "Float8BlockScaling")"), ""}}};
  return all;
}

// The same of the table of memory.
const std::map<std::string, Run>& runs_with_memory() {
  static const std::map<std::string, Run> all = {
      {"GPT-2 124M, 32 sequences of 1024", {"gpt2_124m_gpu", "", ""}},
      {"the same, 64 sequences", {"gpt2_124m_gpu", "--set train_micro_batch_size_per_gpu=64", ""}},
      {"the same, optimizer on the host", {"gpt2_124m_gpu", kHost, ""}},
      {"the same, ZeRO 2 on one rank", {"gpt2_124m_gpu", kZero2, ""}},
      {"7B shape, four sequences of 4096", {"llama_7b_gpu", "", ""}},
      {"the same, one sequence per update", {"llama_7b_gpu", "--set train_micro_batch_size_per_gpu=1", ""}},
      {"the same, four sequences, 8 bits, current scaling",
       {"llama_7b_gpu", in_8_bits(R"("recipe": "Float8CurrentScaling")"), ""}},
      {"the same, 8 bits, delayed scaling, weights kept", {"llama_7b_gpu", in_8_bits(R"("keep_weights": true)"), ""}},
      {"the same, 8 bits, scales of blocks", {"llama_7b_gpu", in_8_bits(R"("recipe": "Float8BlockScaling")"), ""}}};
  return all;
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, '|');) {
    const size_t begin = cell.find_first_not_of(' ');
    cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, cell.find_last_not_of(' ') - begin + 1));
  }
  return cells;
}

// Rows of the table of FIGURES.md that begins with `head`, without it and its rule.
std::vector<std::vector<std::string>> table_of(const std::string& head) {
  std::istringstream in(file_bytes(kSource + "tools/bench/FIGURES.md"));
  std::vector<std::vector<std::string>> rows;
  std::string line;
  while (std::getline(in, line) && !line.starts_with(head)) continue;
  std::getline(in, line);
  while (std::getline(in, line) && line.starts_with("|")) rows.push_back(cells_of(line));
  return rows;
}

class GpuRows : public ProgramTest {
 protected:
  Value planned_by(const std::string& words) {
    const Ran ran = run("plan " + words + " --json");
    EXPECT_EQ(ran.code, 0) << ran.output;
    return ran.code == 0 ? parse_json(ran.output, "plan") : Value::object();
  }
};

TEST_F(GpuRows, are_planned_within_eight_percent) {
  const auto rows = table_of("| step, one GPU | H100 | H200 | H200, 2026-11-29 |");
  ASSERT_EQ(rows.size(), runs().size());
  int compared = 0;
  for (const auto& row : rows) {
    const auto known = runs().find(row.at(1));
    ASSERT_NE(known, runs().end()) << row.at(1);
    const auto& [config, more, left_out] = known->second;
    for (const auto& [card, cell] :
         {std::pair("h100", row.at(2)), std::pair("h200", row.at(3)), std::pair("h200", row.at(4))}) {
      if (cell.empty() || !left_out.empty()) continue;
      const double took = std::stod(cell.starts_with("then ") ? cell.substr(5) : cell) / 1000;
      ASSERT_NE(cell.find(" ms"), std::string::npos) << cell;
      const Value said =
          planned_by(concat(kSource, "configs/bench/", config, ".json -n 1 --hardware ", card, " ", more));
      const double planned = said.find("forecast")->find("time")->find("seconds")->as_double();
      EXPECT_NEAR(planned / took, 1, kWithin) << card << ": " << row.at(1);
      ++compared;
    }
  }
  EXPECT_EQ(compared, 18) << "three rows of the H100, four of the H200, eleven of it on another day";
}

// Without what LibTorch keeps and what is there before the first tensor: the peak of its allocator has neither.
// Figures are written to a hundredth of a GB.
TEST_F(GpuRows, have_their_memory_planned_within_one_percent) {
  const auto rows = table_of("| one H200 | planned, s | measured, s | error | memory planned, measured |");
  ASSERT_EQ(rows.size(), runs_with_memory().size());
  int compared = 0;
  for (const auto& row : rows) {
    const auto known = runs_with_memory().find(row.at(1));
    ASSERT_NE(known, runs_with_memory().end()) << row.at(1);
    const auto& [config, more, left_out] = known->second;
    if (!left_out.empty()) continue;
    const std::string& cell = row.at(5);
    ASSERT_TRUE(cell.ends_with(" GB") && cell.find(", ") != std::string::npos) << cell;
    const double measured = std::stod(cell.substr(cell.find(", ") + 2));
    const Value said = planned_by(concat(kSource, "configs/bench/", config, ".json -n 1 --hardware h200 ", more));
    const Value& memory = *said.find("forecast")->find("memory_gib");
    double planned = 0;
    for (const char* part : {"parameters", "gradients", "optimizer", "buffers", "activations", "working"})
      if (const Value* const gib = memory.find(part)) planned += gib->as_double() * 1024 * 1024 * 1024 / 1e9;
    EXPECT_NEAR(planned / measured, 1, kMemoryWithin) << row.at(1);
    EXPECT_NEAR(planned, std::stod(cell), 0.006) << row.at(1) << ": as it is written there";
    ++compared;
  }
  EXPECT_EQ(compared, 9);
}

// By the figure that README of configs gives, which fits, and one step of the search more, which does not.
TEST_F(GpuRows, the_longest_sequence_fits_and_a_longer_one_does_not) {
  const std::string text = file_bytes(kSource + "configs/README.md"), before = "trains on sequences of ";
  const size_t at = text.find("`long_context.json` " + before);
  ASSERT_NE(at, std::string::npos);
  const int64_t longest = std::stoll(text.substr(text.find(before, at) + before.size())), step = 8192;
  const auto words = [&](int64_t tokens) {
    return concat(kSource, "configs/long_context.json --hardware h100 -n 1 --set dataset.params.seq_length=", tokens,
                  " --set model.params.max_position_embeddings=", tokens);
  };
  const Value said = planned_by(words(longest));
  EXPECT_TRUE(said.find("forecast")->find("fits")->as_bool());
  const Value& memory = *said.find("forecast")->find("memory_gib");
  EXPECT_LE(memory.find("together")->as_double(), memory.find("device")->as_double());
  expect_refused("plan " + words(longest + step), 4, {"long_context", "no choice fits"});
}

}  // namespace
}  // namespace drivetrain::test
