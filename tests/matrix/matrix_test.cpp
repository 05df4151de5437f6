// The composition matrix by pairs: in the cells chosen here every two values of two factors meet, and each cell's ten
// steps and final weights are those of the one-process run of the same global batch. `matrix_test --all` runs every
// legal cell instead (run_all.h); tools/matrix is the way to call it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "matrix/curve.h"
#include "matrix/pairs.h"
#include "matrix/run_all.h"
#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

std::vector<Cell> chosen_cells() {
  static const std::vector<Cell> cells = cover_pairs(legal_cells());
  return cells;
}

class Matrix : public testing::TestWithParam<Cell> {};

TEST_P(Matrix, cell_trains_as_one_process_does) {
  const Value config = config_of(GetParam(), base_config());
  const Reference& reference = reference_of(config);
  const Curve curve = run_curve(config, ranks_of(GetParam()));
  EXPECT_EQ(missing_plugin(GetParam(), curve), "");
  const Deviation d = deviation(curve, reference);
  EXPECT_LE(d.tolerances, 1) << d.outside << "\n" << config.to_json();
  std::printf("  %.2f tolerances in %s\n", d.tolerances, d.where.c_str());
}

std::string test_name(const testing::TestParamInfo<Cell>& info) { return name_of(info.param); }

// Two values that meet in one cell only always meet the same others there, so some more cells, evenly over all.
std::vector<Cell> more_cells() {
  const std::vector<Cell> legal = legal_cells();
  std::vector<Cell> cells;
  for (size_t i = 401; i < legal.size(); i += 811) cells.push_back(legal[i]);
  return cells;
}

INSTANTIATE_TEST_SUITE_P(Spread, Matrix, testing::ValuesIn(more_cells()), test_name);
INSTANTIATE_TEST_SUITE_P(Pairs, Matrix, testing::ValuesIn(chosen_cells()), test_name);

TEST(MatrixCells, cover_every_pair_that_is_legal) {
  const std::vector<Cell> legal = legal_cells(), chosen = chosen_cells();
  EXPECT_EQ(count_pairs(chosen), count_pairs(legal));
  EXPECT_LT(chosen.size(), 60u);
  for (const Cell& cell : chosen) EXPECT_EQ(excuse(cell), nullptr) << name_of(cell);
  std::printf("  %zu cells, %zu legal, %zu chosen for %zu pairs\n", every_cell().size(), legal.size(), chosen.size(),
              count_pairs(chosen));
}

TEST(MatrixCells, have_names_of_their_own) {
  std::set<std::string> names;
  for (const Cell& cell : every_cell()) names.insert(name_of(cell));
  EXPECT_EQ(names.size(), every_cell().size());
}

TEST(MatrixCells, are_chosen_without_chance) { EXPECT_EQ(cover_pairs(legal_cells()), chosen_cells()); }

TEST(MatrixCells, of_every_value_are_some_legal) {
  const std::vector<Cell> legal = legal_cells();
  for (size_t f = 0; f < kFactors; ++f)
    for (size_t v = 0; v < factors()[f].values.size(); ++v)
      EXPECT_TRUE(std::any_of(legal.begin(), legal.end(), [&](const Cell& c) { return c[f] == static_cast<int>(v); }))
          << factors()[f].values[v].name;
}

// Cells that a rule excuses, evenly over the matrix, where no earlier rule does.
std::vector<Cell> sample_of(const Rule& rule, size_t count) {
  std::vector<Cell> cells = every_cell();
  std::erase_if(cells, [&](const Cell& cell) { return excuse(cell) != &rule; });
  std::vector<Cell> sample;
  for (size_t i = 0; i < std::min(count, cells.size()); ++i) sample.push_back(cells[i * cells.size() / count]);
  return sample;
}

TEST(MatrixCells, that_are_excused_are_refused_by_the_runtime_with_the_reason) {
  for (const Rule& rule : rules()) {
    EXPECT_FALSE(sample_of(rule, 1).empty()) << rule.name << " excuses nothing";
    if (!rule.says) continue;
    for (const Cell& cell : sample_of(rule, 5)) {
      const std::string said = error_of([&] { run_curve(config_of(cell, base_config()), ranks_of(cell)); });
      EXPECT_NE(said, "") << name_of(cell) << " is not refused, but excused: " << rule.why;
      EXPECT_NE(said.find(rule.says), std::string::npos) << name_of(cell) << "\n" << said;
    }
  }
}

// Beyond the matrix's sizes of two and its three micro-batches. Four ranks share the vocabulary of 97 as 25, 25, 25,
// and 22 with three rows of padding.
struct Larger {
  const char* name;
  const char* sections;
  int ranks;
  const char* sharding = "ddp";
};

const Larger kLarger[] = {
    {"tp4", R"({"tensor_parallel": {"type": "megatron", "params": {"size": 4, "make_vocab_size_divisible_by": 25}}})",
     4},
    {"tp4sp_pp2", R"({"tensor_parallel": {"type": "megatron", "params": {"size": 4, "make_vocab_size_divisible_by": 25,
                                                                         "sequence_parallel": true}},
                      "pipeline": {"type": "zero_bubble_h1", "params": {"stages": 2}}})",
     8},
    {"pp3", R"({"pipeline": {"type": "one_f_one_b", "params": {"stages": 3}}, "gradient_accumulation_steps": 2})", 3},
    {"pp4", R"({"pipeline": {"type": "zero_bubble_h1", "params": {"stages": 4}}, "gradient_accumulation_steps": 12})",
     4},
    {"pp5", R"({"pipeline": {"type": "gpipe", "params": {"stages": 5}}, "gradient_accumulation_steps": 4})", 5},
    {"pp2x2_one_micro_batch", R"({"pipeline": {"type": "interleaved", "params": {"stages": 2, "chunks": 2}},
                                  "gradient_accumulation_steps": 1})",
     2},
    {"pp2x2_dp2", R"({"pipeline": {"type": "interleaved", "params": {"stages": 2, "chunks": 2}},
                      "gradient_accumulation_steps": 6})",
     4, "zero3"},
    {"ring4", R"({"context_parallel": {"type": "ring", "params": {"size": 4}}})", 4},
    {"ring4_tp2", R"({"context_parallel": {"type": "ring", "params": {"size": 4}},
                      "tensor_parallel": {"type": "megatron", "params": {"size": 2, "make_vocab_size_divisible_by": 7,
                                                                         "sequence_parallel": true}}})",
     8},
    {"ulysses4", R"({"context_parallel": {"type": "ulysses", "params": {"size": 4}}})", 4},
    {"ulysses4_dp2", R"({"context_parallel": {"type": "ulysses", "params": {"size": 4}}})", 8, "zero2"},
    {"dp6", R"({"gradient_accumulation_steps": 2})", 6, "zero3"},
};

class LargerSizes : public testing::TestWithParam<Larger> {};

TEST_P(LargerSizes, train_as_one_process_does) {
  for (const std::vector<std::string>& kernels : {std::vector<std::string>{"standard", "plain"}, {"flash", "fused"}}) {
    Value config = config_of(cell_of({kernels[0], kernels[1], GetParam().sharding}), base_config());
    add_sections(config, GetParam().sections);
    const Deviation d = deviation(run_curve(config, GetParam().ranks), reference_of(config));
    EXPECT_LE(d.tolerances, 1) << d.outside << "\n" << config.to_json();
    std::printf("  %.2f tolerances in %s\n", d.tolerances, d.where.c_str());
  }
}

INSTANTIATE_TEST_SUITE_P(Matrix, LargerSizes, testing::ValuesIn(kLarger),
                         [](const auto& info) { return info.param.name; });

struct Impossible {
  std::vector<std::string> values;  // of a cell
  const char* sections;             // what makes it impossible
  int ranks;
  std::vector<std::string> says;
};

const Impossible kImpossible[] = {
    {{},
     R"({"tensor_parallel": {"type": "megatron", "params": {"size": 8}}})",
     8,
     {"tensor_parallel/megatron", "4", "heads"}},
    {{"qwen2"},
     R"({"tensor_parallel": {"type": "megatron", "params": {"size": 4}}})",
     4,
     {"tensor_parallel/megatron", "2"}},
    {{"tp2"}, "{}", 3, {"tp", "3"}},
    {{},
     R"({"pipeline": {"type": "one_f_one_b", "params": {"stages": 8}}})",
     8,
     {"8 stages of 1 = 8 pieces", "5 units"}},
    {{},
     R"({"pipeline": {"type": "interleaved", "params": {"stages": 2, "chunks": 4}}})",
     2,
     {"2 stages of 4 = 8 pieces", "5 units"}},
    {{},
     R"({"context_parallel": [{"type": "ring", "params": {"size": 2}}, {"type": "ulysses", "params": {"size": 2}}]})",
     4,
     {"context_parallel/ulysses", "context_parallel/ring"}},
    {{},
     R"({"context_parallel": {"type": "ulysses", "params": {"size": 8}}})",
     8,
     {"context_parallel/ulysses", "4", "heads"}},
    {{}, R"({"context_parallel": {"type": "ring", "params": {"size": 5}}})", 5, {"context_parallel/ring", "16"}},
};

TEST(ImpossibleMixes, are_refused_with_the_reason) {
  for (const Impossible& mix : kImpossible) {
    SCOPED_TRACE(mix.sections);
    Value config = config_of(cell_of(mix.values), base_config());
    add_sections(config, mix.sections);
    const std::string said = error_of([&] { run_curve(config, mix.ranks); });
    for (const std::string& part : mix.says)
      EXPECT_NE(said.find(part), std::string::npos) << part << " is not in: " << said;
  }
}

// A tolerance is worth something only if small mistakes are outside.
TEST(MatrixTolerance, shows_small_mistakes) {
  const Value right = config_of(Cell{}, base_config());
  const Reference& reference = reference_of(right);
  EXPECT_LE(deviation(run_curve(right, 1), reference).tolerances, 0) << "the same run again has the same bits";
  const char* mistakes[] = {
      R"({"gradient_clipping": 0.501})", R"({"seed": 12})", R"({"gradient_clipping": 0})",
      R"({"optimizer": {"type": "AdamW", "params": {"lr": 1.001e-2, "eps": 1e-4, "weight_decay": 0.1}}})",
      R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "eps": 1e-4, "weight_decay": 0.1, "decay": "all"}}})"};
  for (const char* mistake : mistakes) {
    Value wrong = right;
    add_sections(wrong, mistake);
    EXPECT_GT(deviation(run_curve(wrong, 1), reference).tolerances, 3) << mistake;
  }
}

TEST(MatrixTolerance, is_small) {
  for (const char* model : {"gpt2", "qwen2", "moe"}) {
    const Reference& r = reference_of(config_of(cell_of({model}), base_config()));
    std::printf("  %s: losses %.6f to %.6f, tolerance at the end: loss %.1e, norm %.1e, weights %.1e\n", model,
                r.curve.losses.front(), r.curve.losses.back(), r.tolerance.loss.back(), r.tolerance.norm.back(),
                r.tolerance.weight);
    EXPECT_LT(r.tolerance.loss.back(), 1e-4);
    EXPECT_LT(r.tolerance.norm.back(), 1e-3);
    EXPECT_LT(r.tolerance.weight, 1e-3);
    EXPECT_LT(r.curve.losses.back(), r.curve.losses.front()) << "it does not learn";
    for (size_t k = 0; k < r.curve.norms.size(); ++k)
      if (static_cast<int64_t>(k) + 1 != kStepWithoutLabels) {
        EXPECT_GT(r.curve.norms[k], 0.5) << "step " << k + 1 << " is not clipped";
      }
  }
}

}  // namespace
}  // namespace drivetrain::test

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--all") return drivetrain::test::run_all({argv + 2, argv + argc});
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
