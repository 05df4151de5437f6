// Muon beside keys that contradict each other or it, and beside parameter groups that fit nothing: what is refused
// names the key, the place and the way out.
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

class MuonBadInput : public ProgramTest {
 protected:
  // The config with this optimizer and further sections; its optimizer stands in line 8.
  void write_config(const std::string& params, const std::string& sections = "") const {
    std::string text = kTiny;
    const std::string adamw = R"({"type": "AdamW", "params": {"lr": 1e-3}})";
    text.replace(text.find(adamw), adamw.size(), concat(R"({"type": "Muon", "params": )", params, "}"));
    if (!sections.empty()) text.replace(text.rfind("}"), 1, concat(",\n  ", sections, "\n}"));
    write("tiny.json", text);
  }
  void expect_refused_config(const std::string& params, const std::string& sections,
                             const std::vector<std::string>& parts) const {
    SCOPED_TRACE(params + " " + sections);
    write_config(params, sections);
    expect_refused("config check tiny.json", 2, parts);
  }
};

TEST_F(MuonBadInput, keys_of_reduce_scatter_that_contradict_are_refused) {
  for (const char* other : {R"("prescale_gradients": true)", R"("gradient_predivide_factor": 2)"})
    expect_refused_config("{}", concat(R"("zero_optimization": {"stage": 2, "reduce_scatter": true}, )", other),
                          {"tiny.json:11:", "reduce_scatter is true", "leave it out"});
  expect_refused_config("{}", R"("zero_optimization": {"stage": 3, "reduce_scatter": "no"})",
                        {"tiny.json:11:", "zero_optimization.reduce_scatter", "boolean"});
  expect_refused_config(R"({"reduce_scatter": true})", "",
                        {"tiny.json:8:", "optimizer.params.reduce_scatter", "zero_optimization"});
  expect_refused_config("{}", R"("reduce_scatter": false)", {"tiny.json:11:", "reduce_scatter", "zero_optimization"});
}

// DeepSpeed refuses `true` with stage 3; here both sum alike, and the start says that the key is idle.
TEST_F(MuonBadInput, reduce_scatter_alone_is_accepted_with_every_stage) {
  for (const int stage : {1, 2, 3})
    for (const char* value : {"true", "false"}) {
      write_config("{}", concat(R"("zero_optimization": {"stage": )", stage, R"(, "reduce_scatter": )", value, "}"));
      const Ran ran = run("config check tiny.json");
      EXPECT_EQ(ran.code, 0) << ran.output;
    }
}

TEST_F(MuonBadInput, groups_that_match_nothing_or_claim_one_parameter_twice_are_refused) {
  expect_refused_config("{}", R"("param_groups": [{"params": "*.q_proj", "lr": 0.01}])",
                        {"tiny.json:11:", "param_groups[0].params: \"*.q_proj\" matches no parameter", "nearest are"});
  expect_refused_config("{}", R"("param_groups": [{"roles": "muon", "lr": 0.01}])",
                        {"tiny.json:11:", "param_groups[0].roles: there is no role \"muon\"", "known here: matrix"});
  expect_refused_config("{}",
                        R"("param_groups": [{"roles": "matrix", "lr": 0.01}, {"params": "*.qkv.weight", "lr": 0.02}])",
                        {"tiny.json:11:", "param_groups[1] and param_groups[0] (",
                         ") both claim block.0.attn.qkv.weight", "one group at most"});
  expect_refused_config(R"({"param_groups": []})", "", {"tiny.json:8:", "optimizer.params.param_groups", "top level"});
}

TEST_F(MuonBadInput, what_is_said_twice_for_the_other_parameters_is_refused) {
  expect_refused_config(R"({"adam_lr": 3e-4, "rest": {"type": "adamw", "params": {"lr": 1e-3}}})", "",
                        {"tiny.json:8:", "adam_lr is 3e-04 and rest.params.lr is 0.001", "remove one of them"});
  expect_refused_config(R"({"rest": "sgd", "betas": [0.8, 0.9]})", "",
                        {"tiny.json:8:", "betas is a key of adamw, and rest is sgd", "remove it"});
  write_config(R"({"rest": "adamv"})");
  expect_refused("config check tiny.json", 3, {"optimizer/adamv is not installed", "adamw"});
}

}  // namespace
}  // namespace drivetrain::test
