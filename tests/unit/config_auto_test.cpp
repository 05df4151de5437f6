// "auto": batch sizes, clipping, switches of sections, and values in quotation marks.
#include "base/text_values.h"
#include "config/run_settings.h"
#include "config_sections_fixture.h"

namespace drivetrain {
namespace {

// "key=value" of what was settled, in order.
std::string settled_text(const Problems& problems) {
  std::string text;
  for (const AutoValue& s : problems.resolved())
    if (s.key != "gradient_clipping") text += concat(text.empty() ? "" : " ", s.key, "=", s.value);
  return text;
}

struct Batch {
  std::string settled;
  BatchSizes sizes;
};
Batch batch_of(const std::string& keys, int64_t ranks = 2) {
  Problems problems;
  const Value config = parse_json("{\"train_steps\": 1, " + keys + "}", "a.json");
  const RunSettings settings = read_run_settings(config, "a.json", problems);
  const BatchSizes sizes = solve_batch(settings, ranks, problems);
  EXPECT_EQ(problems.text(), "") << keys;
  return {settled_text(problems), sizes};
}

constexpr const char *kT = "train_batch_size", *kM = "train_micro_batch_size_per_gpu",
                     *kG = "gradient_accumulation_steps";

TEST(AutoBatch, all_three_have_the_Trainers_defaults) {
  const Batch b = batch_of(R"("train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
                              "gradient_accumulation_steps": "auto")");
  EXPECT_EQ(b.settled, concat(kM, "=8 ", kG, "=1 ", kT, "=from the others"));
  EXPECT_EQ(b.sizes.train_batch_size, 16);
  EXPECT_EQ(b.sizes.micro_batch_size, 8);
}

TEST(AutoBatch, what_is_given_comes_first) {
  const Batch b = batch_of(R"("train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto",
                              "gradient_accumulation_steps": 4)");
  EXPECT_EQ(b.settled, concat(kM, "=from the others"));
  EXPECT_EQ(b.sizes.micro_batch_size, 4);
  const Batch c = batch_of(R"("train_batch_size": 32, "train_micro_batch_size_per_gpu": 4,
                              "gradient_accumulation_steps": "auto")");
  EXPECT_EQ(c.settled, concat(kG, "=from the others"));
  EXPECT_EQ(c.sizes.accumulation, 4);
  const Batch d = batch_of(R"("train_batch_size": "auto")");
  EXPECT_EQ(d.sizes.train_batch_size, 16);
  const Batch e = batch_of(R"("train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 3)");
  EXPECT_EQ(e.sizes.train_batch_size, 48);
}

TEST(AutoBatch, no_clipping_key_is_named) {
  for (const char* keys : {R"("train_batch_size": 4)", R"("train_batch_size": 4, "gradient_clipping": "auto")"}) {
    Problems problems;
    const Value config = parse_json(concat("{\"train_steps\": 1, ", keys, "}"), "a.json");
    EXPECT_EQ(read_run_settings(config, "a.json", problems).gradient_clipping, 1.0);
    ASSERT_EQ(problems.resolved().size(), 1u);
    EXPECT_EQ(problems.resolved()[0].key, "gradient_clipping");
  }
}

// -- switches

std::vector<KnownPlugin> with_precisions() {
  std::vector<KnownPlugin> list = plugins();
  list.push_back(
      {"precision", "wide", "wide16", {}, false, "", form(R"({"off_unless_enabled": true, "auto": {"cuda": 2}})")});
  list.push_back(
      {"precision", "narrow", "narrow16", {}, false, "", form(R"({"off_unless_enabled": true, "auto": {"cuda": 1}})")});
  return list;
}

std::string precision_of(const std::string& body, const std::string& device) {
  Problems problems;
  const auto installed = with_precisions();
  const auto selections = select_plugins(config_of(body), kKinds, installed, device, problems);
  EXPECT_EQ(problems.text(), "") << body;
  return names(selections, "precision");
}

TEST(AutoSwitches, the_device_and_the_rank_decide) {
  const char* both = R"("narrow16": {"enabled": "auto"}, "wide16": {"enabled": "auto"})";
  EXPECT_EQ(precision_of(both, "cuda"), "-narrow wide");
  EXPECT_EQ(precision_of(both, "cpu"), "-narrow -wide");
  EXPECT_EQ(precision_of(R"("narrow16": {"enabled": "auto"})", "cuda"), "narrow");
  EXPECT_EQ(precision_of(R"("narrow16": {"enabled": true}, "wide16": {"enabled": "auto"})", "cuda"), "narrow -wide");
  EXPECT_EQ(precision_of(R"("narrow16": {"enabled": false}, "wide16": {"enabled": "auto"})", "cuda"), "-narrow wide");
}

TEST(AutoSwitches, each_is_settled_with_its_rule) {
  Problems problems;
  const auto installed = with_precisions();
  select_plugins(
      config_of(R"("narrow16": {"enabled": "auto"}, "wide16": {"enabled": "auto"}, "amp": {"enabled": "auto"})"),
      kKinds, installed, "cuda", problems);
  EXPECT_EQ(settled_text(problems), "narrow16.enabled=false wide16.enabled=true amp.enabled=false");
  EXPECT_HAS(problems.resolved()[0].rule, "wide16");
  EXPECT_HAS(problems.resolved()[1].rule, "cuda");
}

TEST(AutoSwitches, the_form_is_checked) {
  for (const char* wrong :
       {R"({"auto": true})", R"({"auto": {}})", R"({"auto": {"cuda": 0}})", R"({"auto": {"cuda": "x"}})"})
    EXPECT_HAS(config_error_of([&] { form(wrong); }), "\"auto\" wants") << wrong;
}

// -- values in quotation marks

struct Plain {
  bool flag = false;
  int64_t whole = 0;
  double real = 0;
  std::string text;
};

std::string parsed(const std::string& json, const std::string& path) {
  const OptionTable t = table<Plain>()
                            .field("flag", &Plain::flag, "")
                            .field("whole", &Plain::whole, "")
                            .field("real", &Plain::real, "")
                            .field("text", &Plain::text, "");
  Problems problems;
  const auto options = t.parse(parse_json(json, "a"), "kind/x", path, problems);
  return problems.empty() ? concat(t.to_value(options.get()).to_json(), " ", problems.notes().size()) : problems.text();
}

TEST(TextValues, are_taken_in_bare_sections_with_a_note_each) {
  EXPECT_EQ(parsed(R"({"flag": "True", "whole": "2", "real": "1e-3", "text": "2"})", "section"),
            R"({"flag":true,"whole":2,"real":0.001,"text":"2"} 3)");
  EXPECT_EQ(parsed(R"({"flag": 1})", "section"), R"({"flag":true,"whole":0,"real":0.0,"text":""} 1)");
  EXPECT_HAS(parsed(R"({"whole": "5e8"})", "section"), "write 5e8, without quotation marks");
  EXPECT_HAS(parsed(R"({"flag": 2})", "section"), "expected boolean");
  EXPECT_HAS(parsed(R"({"whole": "two"})", "section"), "expected integer");
}

TEST(TextValues, are_refused_in_params_and_at_the_top_as_DeepSpeed_does) {
  EXPECT_HAS(parsed(R"({"real": "1e-3"})", "optimizer.params"), "write 1e-3, without quotation marks");
  EXPECT_HAS(parsed(R"({"whole": "2"})", ""), "write 2, without quotation marks");
}

TEST(TextValues, an_unfilled_template_is_told) {
  for (const char* value : {"${BATCH}", "{{ batch }}", "<batch>", "CONFIG_BATCH_SIZE", "%BATCH%"})
    EXPECT_HAS(parsed(concat("{\"whole\": \"", value, "\"}"), "section"), "placeholder of a template") << value;
  EXPECT_FALSE(has(parsed(R"({"whole": "many"})", "section"), "placeholder"));
}

}  // namespace
}  // namespace drivetrain
