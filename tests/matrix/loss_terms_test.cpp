// Terms that units in the middle add to the loss: under every strategy the gradients and figures of one process, whose
// gradients step_executor_test holds against autograd.
#include <gtest/gtest.h>

#include <cmath>

#include <drivetrain/error.h>

#include "matrix/cells.h"
#include "matrix/curve.h"
#include "support/step_by_hand.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

using Names = std::vector<std::string>;

const Registry& registry() {
  static const Registry registry(SearchPath::standard({}, {DRIVETRAIN_LOSS_TERMS_DIR}, ""));
  return registry;
}

Value config_with(const Names& values, const std::string& options, const std::string& sections = "{}") {
  Value config = config_of(cell_of(values), base_config());
  add_sections(config, R"({"fused_block": false, "strategy": {"type": "terms", "params": )" + options + "}}");
  add_sections(config, sections);
  return config;
}
Curve train(const Names& values, const std::string& options, const std::string& sections = "{}") {
  return run_curve(config_with(values, options, sections), ranks_of(cell_of(values)), registry());
}

// A unit's own parameter has no place in the model's folder.
const char* sections_for(const std::string& options) {
  return options.find("gain") == std::string::npos ? "{}" : R"({"save_final": false})";
}

// One process in every order that it has, as in curve.h.
const Reference& alone(const std::string& options) {
  static std::map<std::string, Reference> made;
  const auto [entry, fresh] = made.try_emplace(options);
  if (!fresh) return entry->second;
  std::vector<Curve> runs;
  for (const char* order :
       {R"({"gradient_accumulation_steps": 3})", R"({"gradient_accumulation_steps": 1})",
        R"({"gradient_accumulation_steps": 6, "attention": "flash"})", R"({"gradient_accumulation_steps": 12})"}) {
    Value sections = parse_json(order, "test");
    if (options.find("gain") != std::string::npos) sections.set("save_final", false);
    runs.push_back(train({"plain"}, options, sections.to_json()));
  }
  entry->second = {runs.front(), tolerance_of(runs)};
  return entry->second;
}

void expect_terms(const Curve& found, const Curve& wanted) {
  ASSERT_EQ(found.terms.size(), wanted.terms.size());
  for (const auto& [name, values] : wanted.terms) {
    const std::vector<double>& ours = found.terms.at(name);
    ASSERT_EQ(ours.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(ours[i], values[i], 1e-4 * std::abs(values[i])) << name << i;
  }
}

std::string test_name(const testing::TestParamInfo<Names>& info) {
  std::string name;
  for (const std::string& part : info.param) name += (name.empty() ? "" : "_") + part;
  return name;
}

class LossTerms : public testing::TestWithParam<Names> {};

TEST_P(LossTerms, train_as_in_one_process) {
  for (const char* options : {R"({"weight": 0.1})", R"({"weight": 0.1, "gain": true})"}) {
    SCOPED_TRACE(options);
    const Curve found = train(GetParam(), options, sections_for(options));
    const Deviation d = deviation(found, alone(options));
    EXPECT_LE(d.tolerances, 1) << d.outside;
    expect_terms(found, alone(options).curve);
  }
}

INSTANTIATE_TEST_SUITE_P(Under, LossTerms,
                         testing::Values(Names{"zero1", "dp2"}, Names{"zero3", "dp2"}, Names{"fsdp", "dp4"},
                                         Names{"tp2"}, Names{"tp2sp"}, Names{"1f1b2"}, Names{"interleaved2"},
                                         Names{"zerobubble2"}, Names{"ring2"}, Names{"ulysses2"}, Names{"full"},
                                         Names{"zero1", "dp2", "tp2sp", "zerobubble2", "full"}),
                         test_name);

TEST(LossTermFigures, are_means_without_weight_and_not_part_of_the_loss) {
  const Curve& with = alone(R"({"weight": 0.1})").curve;
  const Curve none = train({"plain"}, R"({"weight": 0})"), light = train({"plain"}, R"({"weight": 1e-9})");
  EXPECT_TRUE(none.terms.empty());
  ASSERT_EQ(with.terms.size(), 2u);
  EXPECT_GT(with.terms.at("square")[0], with.terms.at("last")[0]) << "two units add to the first";
  EXPECT_EQ(with.losses[0], none.losses[0]);
  EXPECT_NE(with.losses[1], none.losses[1]);
  EXPECT_NEAR(with.terms.at("square")[0], light.terms.at("square")[0], 1e-6);
  EXPECT_LT(with.terms.at("square").back(), light.terms.at("square").back()) << "the term was trained";
}

TEST(LossTermMistakes, are_outside_of_the_tolerance) {
  for (const char* mistake : {"a_little_more", "one_micro_batch"}) {
    const Curve found = train({"plain"}, concat(R"({"weight": 0.1, "mistake": ")", mistake, "\"}"));
    EXPECT_GT(deviation(found, alone(R"({"weight": 0.1})")).tolerances, 1) << mistake;
  }
}

// Within the rounding of float16, the norms are those of float32: gradients of terms have the scale, on whichever
// stage.
TEST(LossTermsWithLossScale, have_the_scale_of_the_loss) {
  const auto norms = [](const Names& values, const char* options, const char* sections) {
    return train(values, options, sections).norms;
  };
  const char *heavy = R"({"weight": 2})", *half = R"({"fp16": {"enabled": true, "loss_scale": 2048}})";
  const std::vector<double> wanted = norms({"plain"}, heavy, "{}"),
                            without = norms({"plain"}, R"({"weight": 0})", "{}");
  EXPECT_GT(std::abs(without[0] - wanted[0]), 0.2 * wanted[0]) << "the term shows";
  for (const Names& values : {Names{"plain"}, Names{"1f1b2"}})
    EXPECT_NEAR(norms(values, heavy, half)[0], wanted[0], 2e-2 * wanted[0]);
}

TEST(LossTermsNotFinite, are_named) {
  for (const Names& values : {Names{"plain"}, Names{"1f1b2"}, Names{"full"}}) {
    const std::string text = error_text([&] { train(values, R"({"not_finite_in_step": 3})"); }, ErrorCode::numeric);
    EXPECT_NE(text.find("step 3: loss is"), std::string::npos) << text;
    EXPECT_NE(text.find("loss_terms.square nan"), std::string::npos) << text;
  }
}

TEST(LossTermsRefused, say_what_is_wrong) {
  const std::string half = error_text([] { train({"plain"}, R"({"half": true})"); }, ErrorCode::plugin);
  EXPECT_NE(half.find("add_loss(\"square\"): wanted float32 or float64, found float16"), std::string::npos) << half;
  const std::string region = error_text([] { train({"selective"}, "{}"); }, ErrorCode::plugin);
  EXPECT_NE(region.find("call it outside of the region"), std::string::npos) << region;
}

}  // namespace
}  // namespace drivetrain::test
