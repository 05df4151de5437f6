// "outside_of" in the sections of strategies, by the program: the order that is planned, and the order of calls.
#include <map>

#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

struct Nesting : ProgramTest {
  // `first` and `second`: what stands in their sections beside type and params.
  std::string recorders(const std::string& first, const std::string& second) const {
    const auto section = [&](const char* name, const std::string& more) {
      return concat(R"({"type": "recorder", "params": {"name": ")", name, R"(", "file": ")", path("calls"), "\"}", more,
                    "}");
    };
    return concat(" --plugin-path " DRIVETRAIN_RECORDER_DIR " --set 'strategy=[", section("a", first), ", ",
                  section("b", second), "]' --set train_steps=1");
  }
  // By call, who was called first.
  std::map<std::string, std::string> first_called() const {
    std::map<std::string, std::string> first;
    std::ifstream file(path("calls"));
    for (std::string call, name; file >> call >> name;) first.emplace(call, name);
    return first;
  }
  std::string planned(const std::string& more) const {
    const Ran ran = run("train tiny.json --plan" + more);
    EXPECT_EQ(ran.code, 0) << ran.output;
    const size_t at = ran.output.find("hooks nest, outermost first:");
    return at == std::string::npos ? ran.output : ran.output.substr(at, ran.output.find('\n', at) - at);
  }
};

TEST_F(Nesting, a_strategy_that_is_moved_out_is_called_as_one_further_out) {
  const char* const outermost_first[] = {"plan", "step_begin", "before_forward", "before_backward", "after_update"};
  const char* const innermost_first[] = {"build",          "attach",      "after_forward",
                                         "after_backward", "flush_grads", "step_end"};
  for (const auto& [place, outer, inner] : {std::tuple{"", "a", "b"},
                                            {R"(, "outside_of": "strategy")", "b", "a"},
                                            {R"(, "outside_of": "attention")", "b", "a"}}) {
    SCOPED_TRACE(place);
    std::filesystem::remove_all(path("run")), std::filesystem::remove(path("calls"));
    const Ran ran = run("train tiny.json" + recorders("", place));
    ASSERT_EQ(ran.code, 0) << ran.output;
    std::map<std::string, std::string> first = first_called();
    for (const char* call : outermost_first) EXPECT_EQ(first[call], outer) << call;
    for (const char* call : innermost_first) EXPECT_EQ(first[call], inner) << call;
  }
}

TEST_F(Nesting, a_strategy_stands_directly_outside_of_the_kind_that_it_names) {
  const std::string more = " --set bf16.enabled=true --set activation_checkpointing=full";
  const std::string storage = "hooks nest, outermost first: data_parallel/ddp", ours = " strategy/recorder";
  const auto expect = [&](const char* first, const char* second, const std::string& order) {
    EXPECT_NE(planned(recorders(first, second) + more).find(storage + order), std::string::npos)
        << planned(recorders(first, second) + more);
  };
  const std::string recompute = " recompute/full", precision = " precision/bf16", fused = " strategy/fused_block";
  expect("", "", recompute + precision + ours + ours + fused);
  expect(R"(, "outside_of": "precision")", "", recompute + ours + precision + ours + fused);
  expect(R"(, "outside_of": "precision")", R"(, "outside_of": "recompute")",
         ours + recompute + ours + precision + fused);
  // No plugin of that kind is there: where one would stand.
  expect(R"(, "outside_of": "tensor_parallel")", "", recompute + ours + precision + ours + fused);
}

TEST_F(Nesting, the_place_is_kept_explained_and_checked) {
  const std::string place = recorders(R"(, "outside_of": "precision")", "");
  ASSERT_EQ(run("train tiny.json" + place).code, 0);
  const Value resolved = read_json_file(path("run/resolved.json"));
  EXPECT_EQ(resolved.find("strategy")->items().at(0).find("outside_of")->as_string(), "precision");
  const Ran explained = run("config explain ema.outside_of");
  EXPECT_EQ(explained.code, 0) << explained.output;
  expect_says(explained.output, {"ema.outside_of, of strategy/ema", "directly outside of", "\"precision\""});
  const Ran schema = run("config schema");
  expect_says(schema.output, {"outside_of"});
  expect_says(run("inspect strategy/ema").output, {"\"outside_of\": KIND", "precision"});
  expect_train_refused("--set ema.outside_of=precison", 2, {"ema.outside_of", "is no kind of plugin", "\"precision\""});
  expect_train_refused(
      "--set ema.outside_of=data_parallel", 2,
      {"ema.outside_of: a strategy cannot stand outside of data_parallel", "it can outside of: recompute"});
}

}  // namespace
}  // namespace drivetrain::test
