// "outside_of" in the section of a strategy: where it is read, what it may name, and that resolved.json keeps it.
#include "config_sections_fixture.h"

namespace drivetrain {
namespace {

const std::vector<KindRule>& movable() {
  static const std::vector<KindRule> rules = [] {
    std::vector<KindRule> list = kKinds;
    for (KindRule& rule : list)
      if (rule.kind == "strategy") rule.outside_of = {"recompute", "precision", "strategy"};
    return list;
  }();
  return rules;
}

// "fused: precision, average: -", or the problems.
std::string places(const std::string& body) {
  Problems problems;
  std::string text;
  for (const Selection& s : select_plugins(config_of(body), movable(), plugins(), "cpu", problems))
    if (s.kind == "strategy")
      text += concat(text.empty() ? "" : ", ", s.name, ": ", s.outside_of.empty() ? "-" : s.outside_of);
  return problems.empty() ? text : problems.text();
}

TEST(SectionPlace, stands_in_every_form_of_the_section) {
  EXPECT_EQ(places(R"("fused": {"outside_of": "precision"})"), "fused: precision, average: -");
  EXPECT_EQ(places(R"("strategy": {"type": "average", "outside_of": "strategy", "params": {}})"),
            "average: strategy, fused: -");
  EXPECT_EQ(places(R"("strategy": ["fused", {"type": "average", "outside_of": "recompute"}])"),
            "fused: -, average: recompute");
  EXPECT_EQ(places(R"("fused": {"outside_of": null})"), "fused: -, average: -");
}

TEST(SectionPlace, is_no_option_of_the_plugin) {
  for (const char* body : {R"("fused": {"outside_of": "precision", "a": 1})",
                           R"("fused": {"type": "fused", "outside_of": "precision", "params": {"a": 1}})"}) {
    Problems problems;
    const auto selections = select_plugins(config_of(body), movable(), plugins(), "cpu", problems);
    EXPECT_EQ(problems.text(), "") << body;
    for (const Selection& s : selections)
      if (s.name == "fused") {
        EXPECT_EQ(s.params.to_json(), R"({"a":1})");
      }
  }
}

TEST(SectionPlace, what_it_cannot_name_is_refused) {
  const std::string typo = places("\"fused\": {\"outside_of\":\n \"precison\"}");
  EXPECT_HAS(typo, "a.json:4:2");
  EXPECT_HAS(typo, "fused.outside_of: \"precison\" is no kind of plugin");
  EXPECT_HAS(typo, "did you mean \"precision\"?");
  const std::string other = places(R"("fused": {"outside_of": "optimizer"})");
  EXPECT_HAS(other, "fused.outside_of: a strategy cannot stand outside of optimizer");
  EXPECT_HAS(other, "it can outside of: recompute, precision, strategy");
  EXPECT_HAS(places(R"("strategy": [{"type": "fused", "outside_of": 3}])"),
             "strategy[0].outside_of: expected the name of a kind, found");
  EXPECT_HAS(places(R"("strategy": [{"type": "fused", "outside_off": "precision"}])"), "did you mean \"outside_of\"");
}

TEST(SectionPlace, plugins_of_other_kinds_have_one_place) {
  EXPECT_HAS(places(R"("optimizer": {"type": "sgd", "outside_of": "precision"})"), "outside_of");
  // An option of its own, for the plugin to read.
  EXPECT_EQ(one(R"("optimizer": {"outside_of": 1})", "optimizer").params.to_json(), R"({"outside_of":1})");
}

TEST(SectionPlace, stays_in_the_resolved_configuration) {
  const auto resolve = [](const Value& config) {
    Problems problems;
    const RunSettings settings = read_run_settings(config, "a.json", problems);
    const BatchSizes batch = solve_batch(settings, 2, problems);
    const auto selections = select_plugins(config, movable(), plugins(), "cpu", problems);
    EXPECT_EQ(problems.text(), "");
    return resolved_config(settings, batch, selections, movable(), plugins(),
                           [](const Selection& s) { return s.params; });
  };
  const Value first = resolve(config_of(R"("fused": {"outside_of": "precision"})"));
  EXPECT_EQ(first.find("strategy")->items().at(0).to_json(),
            R"({"type":"fused","params":{},"outside_of":"precision"})");
  EXPECT_EQ(first.find("strategy")->items().at(1).find("outside_of"), nullptr);
  EXPECT_EQ(resolve(parse_json(first.to_json(), "resolved.json")), first);
}

}  // namespace
}  // namespace drivetrain
