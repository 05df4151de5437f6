// `param_groups` as a user meets it: what is refused before anything is written, what the start of a run and its files
// say of the groups, and that a run which goes on keeps them.
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

class ParamGroupsOfConfig : public ProgramTest {
 protected:
  // A shell word of `--set`.
  static std::string groups(const std::string& list) { return " --set 'param_groups=" + list + "'"; }
  void expect_check_refused(const std::string& list, const std::vector<std::string>& parts) const {
    SCOPED_TRACE(list);
    expect_refused("config check " + path("tiny.json") + groups(list), 2, parts);
  }
};

constexpr const char* kGroups =
    R"([{"params": "block.*.mlp.*", "lr": 1e-4}, {"roles": ["norm"], "weight_decay": 0.5},
     {"params": ["embedding.*"], "frozen": true}])";

TEST_F(ParamGroupsOfConfig, that_name_nothing_or_say_nothing_are_refused_with_key_place_and_remedy) {
  write("tiny.json",
        std::string(kTiny).replace(1, 0, "\n  \"param_groups\": [\n    {\"params\": \"blok.*\", \"lr\": 1}],"));
  expect_refused("config check " + path("tiny.json"), 2,
                 {"tiny.json:3:5", "param_groups[0].params: \"blok.*\" matches no parameter", "nearest are block.*"});
  write("tiny.json", kTiny);
  expect_check_refused(R"([{"params": "*qkv", "lr": 1}])",
                       {"--set #1", "\"*qkv\" matches no parameter", "block.*.attn.qkv.bias, block.*.attn.qkv.weight"});
  expect_check_refused(R"([{"params": "embeding*", "lr": 1}])",
                       {"\"embeding*\" matches no parameter", "nearest are embedding."});
  expect_check_refused(R"([{"roles": ["nrom"], "lr": 1}])",
                       {"param_groups[0].roles: there is no role \"nrom\"", "did you mean \"norm\"?"});
  expect_check_refused(R"([{"roles": "expert", "frozen": true}])",
                       {"no parameter of the model has the role \"expert\"", "it has bias, embedding, matrix, norm"});
  expect_check_refused(R"([{"roles": "norm", "params": "block.0.mlp.*", "lr": 1}])",
                       {"no parameter has one of these names and one of these roles", "make two groups"});
  expect_check_refused(R"([{"lr": 1}])", {"param_groups[0] names no parameter", "\"roles\""});
  expect_check_refused(R"([{"params": "*"}])", {"param_groups[0] changes nothing", "\"frozen\": true"});
  expect_check_refused(R"([{"params": "*", "frozen": true, "lr": 1}])", {"frozen parameters are not updated", "lr"});
}

TEST_F(ParamGroupsOfConfig, that_contradict_each_other_or_the_run_are_refused) {
  expect_check_refused(
      R"([{"params": "block.*", "lr": 1e-4}, {"roles": "norm", "lr": 1e-3}])",
      {"param_groups[1] and param_groups[0] (", ") both claim block.0.norm1.weight and 3 more", "one group at most"});
  expect_check_refused(R"([{"params": "*", "frozen": true}])",
                       {"every parameter of the model is frozen", "drivetrain evaluate"});
  expect_refused(
      "config check " + path("tiny.json") + groups(R"([{"params": "*", "lr": 1}])") + " --set optimizer.params.lr=0", 2,
      {"param_groups[0].lr", "the optimizer's, which is 0", "set optimizer.params.lr"});
}

TEST_F(ParamGroupsOfConfig, of_a_wrong_form_are_refused_with_the_right_one) {
  expect_check_refused(R"({"params": "*", "lr": 1})", {"param_groups: expected a list of groups, found object"});
  expect_check_refused(R"(["block.*"])", {"param_groups[0]: expected an object, found string"});
  expect_check_refused(R"([{"params": "*", "lr": "fast"}])", {"param_groups[0].lr", "expected number"});
  expect_check_refused(R"([{"params": "*", "lr": -1}])", {"param_groups[0].lr is -1", "at least 0"});
  expect_check_refused(R"([{"param": "*", "lr": 1}])", {"param_groups[0].param", "did you mean \"params\"?"});
  expect_refused("config check " + path("tiny.json") + R"( --set 'optimizer.params.param_groups=[]')", 2,
                 {"optimizer.params.param_groups", "top level"});
}

TEST_F(ParamGroupsOfConfig, are_shown_at_the_start_and_kept_in_resolved_json) {
  const Ran ran = train(groups(kGroups));
  ASSERT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"parameter groups:", "param_groups[0]", "lr 0.0001", "4 tensors", "2128 parameters",
                           "block.*.mlp.*", "param_groups[1]", "weight_decay 0.5", "role norm", "param_groups[2]",
                           "frozen", "2 tensors", "1280 parameters", "others", "the optimizer's"});
  const Value resolved = parse_json(file_bytes(path("run/resolved.json")), "resolved.json");
  EXPECT_EQ(resolved.find("param_groups")->items().size(), 3u);
  const Value& counts = *resolved.find("_resolved")->find("param_groups");
  EXPECT_EQ(counts.items()[2].find("parameters")->as_int(), 1280);
  const Ran same = run("train run/resolved.json --set output_dir=again");
  ASSERT_EQ(same.code, 0) << same.output;
  EXPECT_EQ(curve("again"), curve("run"));
  EXPECT_TRUE(final_weights("again") == final_weights("run"));
}

TEST_F(ParamGroupsOfConfig, stay_when_a_run_goes_on_and_are_compared) {
  const std::string sets = groups(kGroups) + " --set train_steps=6 --set zero_optimization.stage=1" +
                           R"( --set 'checkpoint_policy={"type": "every", "params": {"steps": 2, "keep": 0}}')";
  ASSERT_EQ(launch(2, sets + " --set output_dir=a").code, 0);
  ASSERT_EQ(launch(2, sets + " --set output_dir=b").code, 0);
  std::filesystem::remove_all(path("b/final"));
  for (const char* tag : {"step-00000004", "step-00000006"}) std::filesystem::remove_all(path("b/checkpoints/") + tag);
  const Ran rest = launch(2, sets + " --set output_dir=b");
  ASSERT_EQ(rest.code, 0) << rest.output;
  expect_says(rest.output, {"goes on from checkpoint step-00000002"});
  EXPECT_EQ(curve("a"), curve("b"));
  EXPECT_TRUE(final_weights("a") == final_weights("b"));
  const std::string other =
      sets + " --set train_steps=8 --set output_dir=b" + groups(R"([{"params": "*", "lr": 1e-4}])");
  const Ran refused = launch(2, other);
  EXPECT_EQ(refused.code, 2) << refused.output;
  expect_says(refused.output, {"param_groups: [{", "--resume auto"});
}

// What begins to be trained has no moments in the checkpoint.
TEST_F(ParamGroupsOfConfig, cannot_unfreeze_when_a_run_goes_on) {
  const std::string policy = R"( --set 'checkpoint_policy={"type": "every", "params": {"steps": 2}}')";
  ASSERT_EQ(train(groups(kGroups) + policy + " --set train_steps=2").code, 0);
  const Ran more =
      train(groups(R"([{"params": "block.*", "frozen": true}])") + policy + " --set train_steps=4 --resume auto");
  EXPECT_EQ(more.code, 6) << more.output;
  expect_says(more.output, {"param_groups: [{", "does not hold 4 parts of the state",
                            "optimizer/adamw/embedding.position.weight.exp_avg"});
}

}  // namespace
}  // namespace drivetrain::test
