// Whole runs whose sequences lie on several ranks follow the curve of one rank: positions, labels, loss and dropout are
// those of the whole sequence.
#include "support/small_run.h"

namespace drivetrain::test {
namespace {

std::string both() {
  return R"("context_parallel": [{"type": "ulysses", "params": {"size": 2}}, {"type": "ring", "params": {"size": 2}}])";
}
std::string one(const char* type, int size) {
  return concat(R"("context_parallel": {"type": ")", type, R"(", "params": {"size": )", size, "}}");
}

// Two sequences a step, on `rows` ranks' worth of batch.
RunResult train(const TempFolder& folder, const std::string& name, const std::string& further, int ranks,
                int accumulation = 2) {
  return train_small(folder, name, "{" + further + "}", ranks, accumulation);
}

// Sums over positions are added in another order, in float32, and Adam passes on what that makes.
void expect_same_curve(const RunResult& found, const RunResult& wanted) {
  ASSERT_EQ(found.metrics.size(), 4u);
  ASSERT_EQ(wanted.metrics.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const auto figure = [&](const RunResult& run, const char* key) { return run.metrics[i].find(key)->as_double(); };
    EXPECT_EQ(figure(found, "tokens"), figure(wanted, "tokens")) << "step " << i + 1;
    EXPECT_NEAR(figure(found, "loss"), figure(wanted, "loss"), 2e-5) << "step " << i + 1;
    EXPECT_NEAR(figure(found, "grad_norm"), figure(wanted, "grad_norm"), 1e-4 * figure(wanted, "grad_norm"))
        << "step " << i + 1;
  }
}

TEST(ContextParallelTraining, every_way_follows_the_curve_of_one_rank) {
  const TempFolder folder;
  for (const bool fused : {true, false}) {
    const std::string blocks = concat(R"("fused_block": {"enabled": )", fused ? "true" : "false", "}");
    const std::string common = blocks + ", ";
    const RunResult alone = train(folder, concat("alone", fused), blocks, 1);
    int n = 0;
    for (const auto& [section, ranks] : std::vector<std::pair<std::string, int>>{
             {one("ring", 2), 2}, {one("ring", 4), 4}, {one("ulysses", 2), 2}, {one("ulysses", 4), 4}, {both(), 4}}) {
      SCOPED_TRACE(common + section);
      expect_same_curve(train(folder, concat("cut", ++n, fused), common + section, ranks), alone);
    }
    expect_same_curve(train(folder, concat("rows", fused), common + one("ring", 2), 4, 1),
                      alone);  // beside data parallelism
  }
}

TEST(ContextParallelTraining, the_number_that_deepspeed_calls_sequence_parallel_size_is_the_same_run) {
  const TempFolder folder;
  const RunResult section = train(folder, "section", one("ulysses", 2), 2),
                  number = train(folder, "number", R"("sequence_parallel_size": 2)", 2);
  EXPECT_EQ(figures(section), figures(number));
}

TEST(ContextParallelTraining, two_runs_have_the_same_bits) {
  const TempFolder folder;
  EXPECT_EQ(figures(train(folder, "first", both(), 4)), figures(train(folder, "second", both(), 4)));
}

TEST(ContextParallelTraining, dropout_is_that_of_the_whole_sequence) {
  const TempFolder folder;
  const std::string model =
      R"("attention": "standard", "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 48,
    "num_attention_heads": 3, "vocab_size": 101, "max_position_embeddings": 16, "hidden_dropout": 0.1, "attention_dropout": 0.2}})";
  const RunResult alone = train(folder, "alone", model, 1),
                  cut = train(folder, "cut", model + ", " + one("ulysses", 2), 2),
                  without = train(folder, "without", model + R"(, "seed": 8)", 1);
  expect_same_curve(cut, alone);
  EXPECT_GT(std::abs(without.metrics[3].find("loss")->as_double() - alone.metrics[3].find("loss")->as_double()), 1e-3);
}

TEST(ContextParallelTraining, a_ring_with_hidden_dropout_alone_drops_what_the_whole_sequence_drops) {
  const TempFolder folder;
  const std::string model = R"("model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 48,
    "num_attention_heads": 3, "vocab_size": 101, "max_position_embeddings": 16, "hidden_dropout": 0.1, "attention_dropout": 0}})";
  expect_same_curve(train(folder, "cut", model + ", " + one("ring", 2), 2), train(folder, "alone", model, 1));
}

}  // namespace
}  // namespace drivetrain::test
