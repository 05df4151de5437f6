// Statistics against scipy 1.x (ttest_ind with equal_var=False, ttest_rel, mannwhitneyu, t.interval), computed once
// with the lists below, and against what every such test has in common. FLOPs against the table of published formulas.
#include <gtest/gtest.h>

#include <random>

#include "study/flops.h"
#include "study/statistics.h"

namespace drivetrain::study {
namespace {

const std::vector<double> kA = {10.1, 9.8, 10.4, 10.0, 10.3}, kB = {10.9, 10.6, 11.2, 10.7, 11.5};

TEST(Statistics, tests_give_the_p_values_of_scipy) {
  std::vector<double> differences;
  for (size_t i = 0; i < kA.size(); ++i) differences.push_back(kA[i] - kB[i]);
  EXPECT_NEAR(*welch_t(kA, kB), 0.0034792744029134262, 1e-12);
  EXPECT_NEAR(*paired_t(differences), 0.0005923845837319884, 1e-12);
  EXPECT_NEAR(*mann_whitney(kA, {9.9, 10.2, 10.6, 10.7}), 0.4126984126984127, 1e-12);
  EXPECT_NEAR(*mann_whitney({1, 2, 2, 3, 5, 5}, {2, 4, 5, 6, 6}), 0.1620516143696369, 1e-12);
}

TEST(Statistics, a_summary_has_the_interval_of_student) {
  const Summary summary = summary_of(kA);
  EXPECT_EQ(summary.n, 5);
  EXPECT_NEAR(summary.mean, 10.12, 1e-12);
  EXPECT_NEAR(*summary.sd, 0.23874672772626646, 1e-12);
  EXPECT_NEAR(summary.confidence->low, 9.823556783493338, 1e-9);
  EXPECT_NEAR(summary.confidence->high, 10.41644321650666, 1e-9);
  EXPECT_FALSE(summary_of({3}).sd);
  EXPECT_EQ(summary_of({}).n, 0);
}

// Student's where values vary little; never below zero, and never without the mean.
TEST(Statistics, an_interval_of_positive_values_stays_positive) {
  const Summary little = positive_summary_of(kA), student = summary_of(kA);
  EXPECT_NEAR(little.confidence->low, student.confidence->low, 0.01);
  EXPECT_NEAR(little.confidence->high, student.confidence->high, 0.01);
  EXPECT_LT(summary_of({1, 10}).confidence->low, 0);
  const Summary wide = positive_summary_of({1, 10});
  EXPECT_GT(wide.confidence->low, 0);
  EXPECT_LT(wide.confidence->low, wide.mean);
  EXPECT_GT(wide.confidence->high, wide.mean);
  EXPECT_LT(positive_summary_of({-3, 1}).confidence->low, 0) << "figures that can be negative keep Student's";
}

TEST(Statistics, nothing_is_said_of_too_few_or_equal_values) {
  EXPECT_FALSE(paired_t({0.1}));
  EXPECT_FALSE(paired_t({0.1, 0.1}));
  EXPECT_FALSE(welch_t({1, 1}, {1, 1}));
  EXPECT_FALSE(mann_whitney({}, {1}));
  EXPECT_FALSE(mann_whitney({2, 2}, {2, 2}));
}

TEST(Statistics, a_test_does_not_know_which_group_is_first) {
  EXPECT_DOUBLE_EQ(*welch_t(kA, kB), *welch_t(kB, kA));
  EXPECT_DOUBLE_EQ(*mann_whitney(kA, kB), *mann_whitney(kB, kA));
}

TEST(Statistics, separated_groups_have_the_smallest_exact_p) {
  EXPECT_NEAR(*mann_whitney({1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}), 2.0 / 252, 1e-12);
}

TEST(Statistics, pairs_without_trimming_are_students) {
  std::vector<double> differences;
  for (size_t i = 0; i < kA.size(); ++i) differences.push_back(kA[i] - kB[i]);
  const Paired paired = paired_of(differences, 0);
  const Summary summary = summary_of(differences);
  EXPECT_DOUBLE_EQ(*paired.p, *paired_t(differences));
  EXPECT_NEAR(paired.confidence->low, summary.confidence->low, 1e-12);
  EXPECT_NEAR(paired.sd, *summary.sd, 1e-12);
}

// By the formula: the mean of what is left, the deviation of {4, 4, 4, 4.5, 5, 5.5, 6, 7, 7, 7}, five degrees of
// freedom.
TEST(Statistics, a_trimmed_mean_has_the_interval_of_tukey_and_mclaughlin_whatever_the_ends_are) {
  std::vector<double> ten = {1, 2, 4, 4.5, 5, 5.5, 6, 7, 9, 30};
  const Paired paired = paired_of(ten, 0.2);
  EXPECT_NEAR(paired.mean, 32.0 / 6, 1e-12);
  EXPECT_NEAR(paired.confidence->low, 3.590113880364849, 1e-9);
  EXPECT_NEAR(paired.confidence->high, 7.076552786301817, 1e-9);
  ten.front() = -1e9, ten.back() = 1e9;
  EXPECT_DOUBLE_EQ(*paired_of(ten, 0.2).p, *paired.p);
  EXPECT_FALSE(paired_of({1, 2, 3, 4}, 0.25).p == paired_of({1, 2, 3, 4}, 0).p);
  EXPECT_FALSE(paired_of({}, 0.2).p || paired_of({1}, 0.2).p);
}

// Where there is no difference, 5 % of all tests say that there is one, also where one value is wild.
// An effect for which the power is 80 % is found that often.
TEST(Statistics, a_trimmed_test_is_wrong_as_often_as_it_says) {
  std::mt19937 numbers(1);
  std::normal_distribution<double> normal;
  const auto found = [&](double effect, double wild, double trim) {
    int count = 0;
    for (int trial = 0; trial < 2000; ++trial) {
      std::vector<double> differences(20);
      for (double& one : differences) one = effect + normal(numbers);
      differences.front() *= wild;
      count += *paired_of(differences, trim).p < 0.05;
    }
    return count / 2000.0;
  };
  EXPECT_NEAR(found(0, 1, 0), 0.05, 0.015);
  EXPECT_NEAR(found(0, 1, 0.2), 0.05, 0.015);
  EXPECT_NEAR(found(0, 30, 0.2), 0.05, 0.02);
  EXPECT_NEAR(found(shown_by(20, 1, 0.05), 1, 0), 0.8, 0.04);
  EXPECT_GT(found(0.8, 30, 0.2), 2 * found(0.8, 30, 0));
}

// The test that decides has the degrees of freedom of the pairs that it keeps, and so has its power. `sd`: what the
// pairs themselves say it is, over many trials.
TEST(Statistics, what_n_pairs_show_with_trim_is_shown_in_four_of_five_trials) {
  std::mt19937 numbers(3);
  std::normal_distribution<double> normal;
  const auto trials_of = [&](int n, double effect, const auto& see) {
    std::vector<double> differences(static_cast<size_t>(n));
    for (int trial = 0; trial < 4000; ++trial) {
      for (double& one : differences) one = effect + normal(numbers);
      see(paired_of(differences, 0.2));
    }
  };
  for (const int n : {6, 10, 20}) {
    double squares = 0, found = 0;
    trials_of(n, 0, [&](const Paired& paired) { squares += paired.sd * paired.sd / 4000; });
    const double effect = shown_by(n, std::sqrt(squares), 0.05, 0.2);
    trials_of(n, effect, [&](const Paired& paired) { found += *paired.p < 0.05; });
    EXPECT_NEAR(found / 4000, 0.8, 0.04) << n;
    EXPECT_LE(pairs_needed(effect * 1.0001, std::sqrt(squares), 0.05, 0.2), n);
    EXPECT_GT(effect, shown_by(n, std::sqrt(squares), 0.05) * 1.02) << n;
  }
}

TEST(Statistics, a_bound_of_the_deviation_holds_in_four_of_five_trials) {
  std::mt19937 numbers(5);
  std::normal_distribution<double> normal;
  for (const int n : {3, 6, 30}) {
    std::vector<double> differences(static_cast<size_t>(n));
    int held = 0;
    for (int trial = 0; trial < 4000; ++trial) {
      for (double& one : differences) one = normal(numbers);
      const Paired paired = paired_of(differences, 0);
      held += sd_at_most(paired.sd, paired.degrees) > 1;
    }
    EXPECT_NEAR(held / 4000.0, 0.8, 0.025) << n;
  }
  const std::vector<double> ten = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_LT(paired_of(ten, 0.2).degrees, paired_of(ten, 0).degrees) << "fewer are kept";
  EXPECT_GT(sd_at_most(1, 5), sd_at_most(1, 9));
}

// The tables of power analysis for a paired t-test of 5 % and 80 % (G*Power, statsmodels.stats.power.TTestPower).
TEST(Statistics, pairs_needed_are_those_of_the_tables) {
  EXPECT_EQ(pairs_needed(0.2, 1, 0.05), 199);
  EXPECT_EQ(pairs_needed(0.5, 1, 0.05), 34);
  EXPECT_EQ(pairs_needed(0.8, 1, 0.05), 15);
  EXPECT_EQ(pairs_needed(-0.05, 0.1, 0.05), 34);
  EXPECT_NEAR(static_cast<double>(pairs_needed(0.05, 1, 0.05)), 3142, 3);
  EXPECT_GT(pairs_needed(0.5, 1, 0.01), 34);
}

TEST(Statistics, what_n_pairs_show_needs_n_pairs) {
  for (const int64_t n : {3, 6, 12, 40}) {
    const double shown = shown_by(n, 0.02, 0.025);
    EXPECT_EQ(pairs_needed(shown * 1.0001, 0.02, 0.025), n);
    EXPECT_EQ(pairs_needed(shown * 0.98, 0.02, 0.025) > n, true);
  }
}

TEST(Statistics, holm_corrects_in_order_and_never_beyond_one) {
  const std::vector<double> corrected = holm({0.01, 0.04, 0.03, 0.005});
  const std::vector<double> wanted = {0.03, 0.06, 0.06, 0.02};
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(corrected[i], wanted[i], 1e-12);
  EXPECT_EQ(holm({0.9, 0.8}), (std::vector<double>{1, 1}));
}

ModelShape internlm_7b() { return {32, 4096, 32, 32, 128, 11008, 103168, 2048, 7321948160.0, true}; }
ModelShape yi_34b() { return {60, 7168, 56, 8, 128, 20480, 64000, 8192, 34388917248.0, true}; }

double giga(const ModelShape& shape, bool recomputes, const std::string& name) {
  for (const Convention& one : conventions(shape, recomputes))
    if (one.name == name) return one.flops / 1e9;
  ADD_FAILURE() << name;
  return 0;
}

TEST(Flops, conventions_give_the_published_figures) {
  const ModelShape seven = internlm_7b(), yi = yi_34b();
  const auto near = [](double found, double wanted) { EXPECT_NEAR(found / wanted, 1, 1e-6) << wanted; };
  near(giga(seven, true, "megatron_sc21"), 58.370032), near(giga(seven, false, "megatron_sc21"), 44.411388);
  near(giga(seven, true, "xtuner"), 56.490983), near(giga(seven, false, "ml_engineering"), 43.931689);
  near(giga(seven, false, "megatron_lm"), 43.002102), near(giga(seven, true, "megatron_deepspeed"), 59.483619);
  near(giga(seven, true, "llama_factory"), 58.638467), near(giga(seven, false, "palm"), 47.152914);
  near(giga(yi, true, "internevo"), 369.166909), near(giga(yi, true, "xtuner"), 340.981187);
  near(giga(yi, true, "megatron_lm"), 224.715080), near(giga(yi, true, "megatron_deepspeed"), 320.759398);
  near(giga(yi, true, "llama_factory"), 326.888325), near(giga(yi, true, "palm"), 248.612088);
}

TEST(Flops, hardware_counts_the_fourth_pass_of_the_layers_and_not_of_the_output_layer) {
  const ModelShape shape = internlm_7b();
  const double model = giga(shape, false, "megatron_lm") * 1e9;
  EXPECT_DOUBLE_EQ(hardware_flops(model, shape, 0), model);
  const double head = 6.0 * 4096 * 103168;
  EXPECT_NEAR(hardware_flops(model, shape, 1), (model - head) * 4 / 3 + head, 1);
}

}  // namespace
}  // namespace drivetrain::study
