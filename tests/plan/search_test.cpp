// Search spaces: which mixes there are, and what they make of a config; and why a plan is slower than another.
#include <gtest/gtest.h>

#include "planner/search.h"

namespace drivetrain {
namespace {

Value space_file() { return read_json_file(DRIVETRAIN_SOURCE_DIR "/configs/planner/search.json"); }

size_t level_of(const SearchFactor& factor, const Value& level) {
  for (size_t i = 0; i < factor.levels.size(); ++i)
    if (factor.levels[i] == level) return i;
  ADD_FAILURE() << factor.name << " has no level " << level.to_json();
  return 0;
}

// By name of the factor; the others at their first level.
std::vector<size_t> mix(const SearchSpace& space, const std::vector<std::pair<std::string, Value>>& levels) {
  std::vector<size_t> list(space.factors.size(), 0);
  for (const auto& [name, level] : levels)
    for (size_t f = 0; f < space.factors.size(); ++f)
      if (space.factors[f].name == name) list[f] = level_of(space.factors[f], level);
  return list;
}

TEST(SearchSpace, numbers_double_up_to_their_bound) {
  const SearchSpace space = search_space(space_file(), 16, 4);
  EXPECT_EQ(space.factors.front().levels, (std::vector<Value>{1, 2, 4})) << "tp stays on a host";
  EXPECT_EQ(space.factors.at(1).levels, (std::vector<Value>{1, 2, 4, 8, 16})) << "pp may take all ranks";
}

TEST(SearchSpace, every_mix_divides_the_ranks_and_none_comes_twice) {
  for (const int64_t ranks : {1, 6, 8, 64}) {
    const SearchSpace space = search_space(space_file(), ranks, 8);
    std::vector<std::vector<size_t>> mixes = mixes_of(space, ranks);
    ASSERT_FALSE(mixes.empty());
    for (const auto& one : mixes) {
      int64_t cut = 1;
      for (size_t f = 0; f < 3; ++f) cut *= space.factors[f].levels[one[f]].as_int();
      EXPECT_EQ(ranks % cut, 0);
    }
    const size_t all = mixes.size();
    std::sort(mixes.begin(), mixes.end());
    mixes.erase(std::unique(mixes.begin(), mixes.end()), mixes.end());
    EXPECT_EQ(mixes.size(), all);
  }
}

TEST(SearchSpace, a_mix_changes_its_keys_and_leaves_the_others) {
  const SearchSpace space = search_space(space_file(), 8, 8);
  const Value config = parse_json(R"({"seed": 7, "gradient_accumulation_steps": 3, "data_parallel": "x",
    "tensor_parallel": {"size": 8, "keep_gathered": true},
    "pipeline": {"type": "mine", "params": {"stages": 8, "chunks": 2}}, "context_parallel": {"type": "y", "size": 2}})",
                                  "c");
  const Value made =
      config_of(space, mix(space, {{"tp", 2}, {"pp", 4}, {"zero", 3}, {"recompute", "full"}}), config, 64);
  EXPECT_EQ(made, parse_json(R"({"seed": 7, "tensor_parallel": {"size": 2, "keep_gathered": true},
    "pipeline": {"type": "mine", "params": {"stages": 4, "chunks": 2}}, "train_batch_size": 64,
    "zero_optimization": {"stage": 3}, "activation_checkpointing": "full", "train_micro_batch_size_per_gpu": 1})",
                             "c"));
  const Value bare = config_of(space, mix(space, {{"pp", 2}}), Value::object(), 8);
  EXPECT_EQ(bare.find("pipeline")->find("params")->find("stages")->as_int(), 2);
  EXPECT_EQ(bare.find("tensor_parallel"), nullptr);
}

TEST(SearchSpace, experts_are_split_by_what_divides_them_and_the_ranks) {
  const auto factors = [](const SearchSpace& space) { return space.factors.size(); };
  const SearchSpace dense = search_space(space_file(), 16, 4), mixture = search_space(space_file(), 16, 4, 12);
  EXPECT_EQ(factors(mixture), factors(dense) + 1) << "a model without experts has nothing to split";
  EXPECT_EQ(mixture.factors.at(3).levels, (std::vector<Value>{1, 2, 4}));
  EXPECT_EQ(search_space(space_file(), 8, 4, 64).factors.at(3).levels, (std::vector<Value>{1, 2, 4, 8}));
  for (const std::vector<size_t>& one : mixes_of(mixture, 16)) {
    int64_t cut = 1;
    for (size_t f = 0; f < 4; ++f) cut *= mixture.factors[f].levels[one[f]].as_int();
    EXPECT_EQ(16 % cut, 0) << "the axis ep has ranks of its own";
  }
  const Value config =
      parse_json(R"({"expert_parallel": {"enabled": true, "autoep_size": 4, "imbalance_factor": 1.5}})", "c");
  EXPECT_EQ(config_of(mixture, mix(mixture, {{"ep", 2}}), config, 8).find("expert_parallel")->to_json(),
            R"({"enabled":true,"imbalance_factor":1.5,"size":2})");
  EXPECT_EQ(config_of(mixture, mix(mixture, {{"ep", 1}}), config, 8).find("expert_parallel"), nullptr);
  EXPECT_EQ(config_of(mixture, mix(mixture, {{"ep", 4}}), Value::object(), 8).find("expert_parallel")->to_json(),
            R"({"enabled":true,"size":4})");
}

TEST(SearchSpace, what_is_no_space_is_refused_with_the_key) {
  const auto refusal = [](const char* text) -> std::string {
    try {
      search_space(parse_json(text, "space.json"), 8, 8);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal("{}").find("\"factors\""), std::string::npos);
  EXPECT_NE(refusal(R"({"factors": [{"name": "a", "section": "b", "upto": "ranks"}]})").find("did you mean \"up_to\""),
            std::string::npos);
  EXPECT_NE(refusal(R"({"factors": [{"name": "a", "section": "b", "up_to": "moon"}]})").find("moon"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"factors": [{"section": "b", "levels": [1]}]})").find("\"name\""), std::string::npos);
}

Candidate candidate(const std::string& zero, double seconds, double gib) {
  Candidate one;
  one.levels = {zero}, one.forecast.time.seconds = seconds;
  one.forecast.time.parts = {{"products", seconds, 0}};
  one.forecast.memory.gib = gib, one.forecast.memory.has_gib = 80;
  return one;
}

TEST(Search, plans_that_are_the_same_are_counted_and_the_first_stands_for_them) {
  SearchResult result;
  result.factors = {"zero"}, result.tried = 5;
  const Hardware hardware;
  for (const Candidate& one : {candidate("0", 1, 10), candidate("1", 1, 10), candidate("2", 1, 11),
                               candidate("3", 2, 90), candidate("4", 2, 90)})
    add_candidate(result, one, hardware);
  ASSERT_EQ(result.fits.size(), 2u);
  EXPECT_EQ(result.fits[0].levels.front(), "0");
  EXPECT_EQ(result.fits[1].levels.front(), "2") << "as fast, with another memory: not the same";
  EXPECT_EQ(result.too_large.size(), 1u);
  EXPECT_EQ(result.same, 2u);
  EXPECT_NE(search_text(result).find("2 are planned as one of these and left out"), std::string::npos);
  EXPECT_EQ(search_value(result, hardware).find("same")->as_int(), 2);
}

TEST(Search, tells_how_far_it_is_from_the_first_mix_to_the_last) {
  const SearchSpace space = search_space(space_file(), 8, 8);
  std::vector<size_t> told;
  size_t most = 0;
  const SearchResult result = search(
      space, Value::object(), 8, 8, Hardware{},
      [](const Value&) -> std::unique_ptr<PreparedRun> { throw Error(ErrorCode::config, "refused"); },
      [&](size_t tried, size_t all) { told.push_back(tried), most = all; });
  ASSERT_EQ(told.size(), result.tried + 1);
  for (size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], i);
  EXPECT_EQ(most, result.tried);
  EXPECT_EQ(result.refused, result.tried);
}

TEST(WhySlower, names_the_parts_that_lose_most) {
  StepTime best, other;
  best.parts = {{"products", 1.0, 0}, {"pipeline idle", 0.1, 0}, {"optimizer", 0.2, 0}};
  other.parts = {{"products", 1.0, 0}, {"pipeline idle", 0.5, 0}, {"optimizer", 0.1, 0}, {"tp: sums", 0.2, 0}};
  EXPECT_EQ(why_slower(best, other), "pipeline idle +0.4 s, tp: sums +0.2 s");
  EXPECT_EQ(why_slower(best, best), "as fast");
}

}  // namespace
}  // namespace drivetrain
