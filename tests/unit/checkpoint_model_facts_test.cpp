// What a checkpoint says of its model beside what the run's model says of itself.
#include <gtest/gtest.h>

#include <drivetrain/error.h>

#include "formats/model_facts.h"
#include "support/tensor_checkpoint.h"

namespace drivetrain::test {
namespace {

Value parsed(const std::string& json) { return parse_json(json, "test"); }

std::string compared(const std::string& said, const std::string& ours) {
  Value facts = Value::object();
  facts.set("model", parsed(said));
  WeightRules rules;
  rules.config = parsed(ours);
  return check_model_facts(TensorCheckpoint({}, facts), rules, "FOLDER");
}

constexpr const char* kOurs = R"({"rotary_base": 10000.0, "rope_scaling": null, "activation": "swiglu", "heads": 4,
  "scale": 0.35355339059327379, "scaling": {"factor": 8.0, "original": 8192}})";

TEST(CheckpointModelFacts, equal_facts_pass_however_they_are_written) {
  EXPECT_EQ(compared(R"({"rotary_base": 10000, "rope_scaling": null, "activation": "swiglu", "heads": 4.0,
    "scale": 0.3535533905932738, "scaling": {"original": 8192.0, "factor": 8}})",
                     kOurs),
            "");
  EXPECT_EQ(compared("{}", kOurs), "") << "a checkpoint need not say everything";
  WeightRules none;
  EXPECT_EQ(check_model_facts(TensorCheckpoint({}, Value::object()), none, "FOLDER"), "");
}

TEST(CheckpointModelFacts, every_fact_that_differs_is_told_at_once) {
  const std::string differing[] = {R"("rotary_base": 500000)",
                                   R"("rope_scaling": {"factor": 8.0})",
                                   R"("activation": "gelu")",
                                   R"("heads": null)",
                                   R"("scale": 0.3536)",
                                   R"("scaling": {"factor": 8.0})",
                                   R"("scaling": {"factor": 32.0, "original": 8192})"};
  for (const std::string& one : differing) {
    SCOPED_TRACE(one);
    try {
      compared("{" + one + R"(, "other": 1})", kOurs);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::config);
      const std::string text = e.what(), name = one.substr(1, one.find('"', 1) - 1);
      EXPECT_NE(text.find(concat("FOLDER: the checkpoint is of another model")), std::string::npos) << text;
      EXPECT_NE(text.find(concat("\n   ", name, " is ")), std::string::npos) << text;
    }
  }
}

TEST(CheckpointModelFacts, what_the_model_says_nothing_about_is_named) {
  const std::string unsaid = compared(R"({"heads": 4, "window": 128, "softcap": 30})", kOurs);
  EXPECT_NE(unsaid.find("the checkpoint says window, softcap, which is not compared"), std::string::npos) << unsaid;
}

TEST(CheckpointModelFacts, options_of_the_run_that_saved_are_named_where_they_differ) {
  const auto told = [](const std::string& saved, const std::string& name, const std::string& now) {
    Value facts = Value::object();
    facts.set("config", parsed("{\"model\": " + saved + "}"));
    return differing_options(TensorCheckpoint({}, facts), name, parsed(now), "FOLDER");
  };
  const std::string saved = R"({"type": "gpt", "params": {"rotary_base": 500000, "from": "a", "heads": 4}})";
  EXPECT_EQ(told(saved, "gpt", R"({"rotary_base": 500000.0, "from": "b", "heads": 4, "more": 1})"), "");
  const std::string other = told(saved, "gpt", R"({"rotary_base": 10000, "from": null, "heads": 8})");
  for (const char* part : {"FOLDER", "rotary_base 500000 there, 10000 here", "heads 4 there, 8 here"})
    EXPECT_NE(other.find(part), std::string::npos) << other;
  EXPECT_NE(told(saved, "toy", "{}").find("model/toy"), std::string::npos);
  EXPECT_EQ(told(R"({"type": "gpt"})", "gpt", "{}"), "");
}

}  // namespace
}  // namespace drivetrain::test
