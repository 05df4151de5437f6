// data_types and communication_data_type: DeepSpeed's names, and what is said of others.
#include "config/run_settings.h"
#include "config_test_support.h"

namespace drivetrain {
namespace {

RunSettings typed_settings(const std::string& body, Problems& problems) {
  return read_run_settings(parse_json("{\"train_steps\": 1,\n" + body + "}", "a.json"), "a.json", problems);
}

std::string refused(const std::string& body) {
  Problems problems;
  typed_settings(body, problems);
  return problems.text();
}

TEST(DataTypes, Every_name_of_DeepSpeed_is_taken_and_nothing_is_chosen_by_default) {
  for (const char* name : {"fp32", "float32", "float", "torch.float32", "bf16", "bfloat16", "torch.bfloat16", "fp16",
                           "float16", "half", "torch.float16"}) {
    Problems problems;
    const std::string quoted = "\"" + std::string(name) + "\"";
    const RunSettings s =
        typed_settings("\"data_types\": {\"grad_accum_dtype\": " + quoted + ", \"param_dtype\": " + quoted +
                           "}, \"communication_data_type\": " + quoted,
                       problems);
    EXPECT_EQ(problems.text(), "");
    EXPECT_EQ(s.data_types.grad_accum, name);
    EXPECT_EQ(s.data_types.param, name);
    EXPECT_EQ(s.communication_data_type, name);
    EXPECT_EQ(s.types_where.text(), "a.json:2:1");
  }
  for (const char* body :
       {"", R"("data_types": {})", R"("data_types": null)",
        R"("data_types": {"grad_accum_dtype": null, "param_dtype": null}, "communication_data_type": null)"}) {
    Problems problems;
    const RunSettings s = typed_settings(body, problems);
    EXPECT_EQ(problems.text(), "") << body;
    EXPECT_FALSE(s.data_types.grad_accum || s.data_types.param || s.communication_data_type) << body;
  }
}

TEST(DataTypes, Other_names_are_refused_with_those_that_are_known) {
  EXPECT_HAS(refused(R"("data_types": {"grad_accum_dtype": "fp8"})"),
             "a.json:2:36  data_types.grad_accum_dtype is \"fp8\", but the run takes \"fp32\", \"bf16\", \"fp16\", "
             "\"float32\", ");
  EXPECT_HAS(refused(R"("communication_data_type": "int8")"),
             "communication_data_type is \"int8\", but the run takes \"fp32\", \"bf16\", ");
  EXPECT_HAS(refused(R"("communication_data_type": 16)"),
             "communication_data_type of the run: expected string or null");
  EXPECT_HAS(refused(R"("data_types": {"grad_acum_dtype": "fp32"})"), "did you mean \"grad_accum_dtype\"");
  EXPECT_HAS(refused(R"("data_types": {"buffer_dtype": "fp32"})"), "there are no buffers beside parameters");
}

}  // namespace
}  // namespace drivetrain
