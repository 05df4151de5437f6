// State that was saved under one topology and loaded under another: every value has the same bits, and the run goes on
// as the run on one process does, within the matrix's tolerances. All pairs: DRIVETRAIN_ALL_TOPOLOGIES=1.
#include <gtest/gtest.h>

#include <cstdlib>

#include "matrix/curve.h"
#include "support/memory_checkpoint.h"

namespace drivetrain::test {
namespace {

constexpr int64_t kSaved = 3;  // steps before the save

const std::vector<std::vector<std::string>>& topologies() {
  static const std::vector<std::vector<std::string>> list = {
      {},
      {"ddp", "dp2"},
      {"zero1", "dp2"},
      {"zero2", "dp4"},
      {"zero3", "dp2"},
      {"fsdp", "dp4"},
      {"tp2"},
      {"1f1b2"},
      {"zerobubble2", "zero2", "dp2"},
      {"ring2", "zero1", "dp2"},
      {"ulysses2"},
      {"zero3", "dp2", "tp2sp", "1f1b2"},
  };
  return list;
}

Value config_for(const std::vector<std::string>& values) { return config_of(cell_of(values), base_config()); }
int ranks_for(const std::vector<std::string>& values) { return ranks_of(cell_of(values)); }

void expect_equal(const MemoryCheckpoint& found, const MemoryCheckpoint& wanted) {
  EXPECT_EQ(found.facts().to_json(), wanted.facts().to_json());
  EXPECT_EQ(found.tensors_.size(), wanted.tensors_.size());
  for (const auto& [name, t] : wanted.tensors_) {
    const auto other = found.tensors_.find(name);
    ASSERT_NE(other, found.tensors_.end()) << name;
    EXPECT_TRUE(at::equal(other->second, t)) << name;
  }
}

void expect_on_the_curve(const RunPart& part, const Reference& reference) {
  for (const auto& [step, figures] : part.figures) {
    const auto at = static_cast<size_t>(step - 1);
    EXPECT_NEAR(figures.first, reference.curve.losses[at], reference.tolerance.loss[at]) << "loss of step " << step;
    EXPECT_NEAR(figures.second / reference.curve.norms[at], 1, reference.tolerance.norm[at]) << "norm of step " << step;
  }
  EXPECT_EQ(part.figures.rbegin()->first, kSteps);
}

TEST(Topologies, state_saved_on_one_goes_on_on_another) {
  const bool all_pairs = std::getenv("DRIVETRAIN_ALL_TOPOLOGIES") != nullptr;
  const Reference& reference = reference_of(config_for({}));
  const size_t n = topologies().size();
  int pairs = 0;
  for (size_t a = 0; a < n; ++a) {
    const RunPart saved = run_part(config_for(topologies()[a]), ranks_for(topologies()[a]), nullptr, kSaved);
    for (size_t b = 0; b < n; ++b) {
      if (!all_pairs && b != (a + 1) % n && b != (a + 5) % n) continue;
      SCOPED_TRACE(concat(name_of(cell_of(topologies()[a])), " to ", name_of(cell_of(topologies()[b]))));
      const Value config = config_for(topologies()[b]);
      expect_equal(run_part(config, ranks_for(topologies()[b]), &saved.end, 0).end, saved.end);
      const RunPart rest = run_part(config, ranks_for(topologies()[b]), &saved.end, kSteps);
      EXPECT_EQ(rest.figures.begin()->first, kSaved + 1);
      expect_on_the_curve(rest, reference);
      ++pairs;
    }
  }
  std::cout << pairs << " pairs of topologies\n";
}

// The check can fail: one element of one moment of one rank.
TEST(Topologies, one_wrong_bit_of_a_moment_is_seen) {
  RunPart saved = run_part(config_for({"zero2", "dp4"}), 4, nullptr, kSaved);
  const MemoryCheckpoint right = saved.end;
  auto moment = std::find_if(saved.end.tensors_.begin(), saved.end.tensors_.end(),
                             [](const auto& t) { return t.first.starts_with("optimizer/"); });
  ASSERT_NE(moment, saved.end.tensors_.end());
  moment->second = moment->second.clone();
  moment->second.view(-1)[0].add_(1e-3);
  const RunPart loaded = run_part(config_for({"tp2"}), 2, &saved.end, 0);
  EXPECT_FALSE(at::equal(loaded.end.tensors_.at(moment->first), right.tensors_.at(moment->first)));
}

}  // namespace
}  // namespace drivetrain::test
