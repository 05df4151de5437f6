// A plugin that nobody foresaw: its manifest alone says how its section may be written, and no table of the runtime
// knows it.
#include "config_sections_fixture.h"
#include "plugin/manifest.h"
#include "plugin/registry.h"
#include "train/config_changes.h"

namespace drivetrain {
namespace {

// The manifest of one plugin; `claim` are the fields that speak of its section.
std::string manifest_of(const std::string& kind, const std::string& name, const std::string& claim) {
  return "DRIVETRAIN-MANIFEST 1\n" + concat(R"({"library":"l","version":"1","licence":"MIT","entries":[{"kind":")",
                                            kind, R"(","name":")", name, R"(","summary":"s")", claim.empty() ? "" : ",",
                                            claim, R"(}],"fingerprint":{}})");
}

std::vector<KnownPlugin> with(const std::string& kind, const std::string& name, const std::string& claim) {
  std::vector<KnownPlugin> list = plugins();
  list.push_back(parse_manifest(manifest_of(kind, name, claim)).entries.front().known());
  return list;
}

std::string manifest_error(const std::string& claim, const std::string& kind = "monitor") {
  try {
    parse_manifest(manifest_of(kind, "mine", claim));
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::plugin) << claim;
    return e.what();
  }
  return "accepted";
}

std::string params_of(const std::string& body, const std::string& name, const std::vector<KnownPlugin>& installed) {
  for (const Selection& s : select(body, installed))
    if (s.name == name) return (s.enabled ? "" : "-") + s.params.to_json();
  return "not chosen";
}

TEST(SectionForms, a_number_true_and_off_mean_what_the_manifest_says) {
  const auto list = with("strategy", "mine",
                         R"("section":"my_section","section_form":{"aliases":["our_section"],"number":"depth",)"
                         R"("on":{"depth":2,"mode":"fast"},"off":{"depth":0,"stage":0}})");
  EXPECT_EQ(params_of(R"("my_section": 4)", "mine", list), R"({"depth":4})");
  EXPECT_EQ(params_of(R"("our_section": 4)", "mine", list), R"({"depth":4})");
  EXPECT_EQ(params_of(R"("my_section": true)", "mine", list), R"({"depth":2,"mode":"fast"})");
  EXPECT_EQ(params_of(R"("my_section": {"mode": "slow"})", "mine", list), R"({"mode":"slow"})");
  EXPECT_EQ(params_of(R"("my_section": 0)", "mine", list), R"(-{"depth":0})");
  EXPECT_EQ(params_of(R"("my_section": {"stage": 0})", "mine", list), R"(-{"stage":0})");
  EXPECT_EQ(params_of(R"("our_section": {"params": {"stage": 0.0}})", "mine", list), R"(-{"stage":0.0})");
  EXPECT_EQ(params_of(R"("my_section": {"stage": 1, "enabled": false})", "mine", list), R"(-{"stage":1})");
  EXPECT_EQ(params_of("", "mine", list), "not chosen");
}

TEST(SectionForms, off_unless_enabled_is_a_form_too) {
  const auto list = with("monitor", "mine", R"("section":"my_section","section_form":{"off_unless_enabled":true})");
  EXPECT_EQ(params_of(R"("my_section": {"a": 1})", "mine", list), R"(-{"a":1})");
  EXPECT_EQ(params_of(R"("my_section": {"a": 1, "enabled": true})", "mine", list), R"({"a":1})");
  EXPECT_EQ(params_of(R"("my_section": true)", "mine", list), "{}");
  EXPECT_HAS(refusal(R"("my_section": 4)", list), "my_section: expected a type name or an object, found integer 4");
}

TEST(SectionForms, a_mistyped_section_finds_the_claimed_names) {
  const auto list = with("monitor", "mine", R"("section":"harvester","section_form":{"aliases":["gatherer"]})");
  EXPECT_HAS(refusal(R"("harvestr": 4)", list), "did you mean \"harvester\"?");
  EXPECT_HAS(refusal(R"("gathrer": 4)", list), "did you mean \"gatherer\"?");
}

TEST(SectionForms, a_claim_counts_for_more_than_what_is_known_of_other_programs) {
  // DeepSpeed's "off unless enabled" and "stage 0" are not forms of this plugin: it does not declare them.
  const auto list = with("data_parallel", "mine", R"("section":"flops_profiler")");
  EXPECT_EQ(params_of(R"("flops_profiler": {"a": 1})", "mine", list), R"({"a":1})");
  auto other = with("data_parallel", "mine", R"("section":"zero_optimization")");
  std::erase_if(other, [](const KnownPlugin& p) { return p.name == "zero"; });
  EXPECT_EQ(params_of(R"("zero_optimization": {"stage": 0})", "mine", other), R"({"stage":0})");
}

// Both speak of the same files: "no" is "no" whether the plugin is installed or not.
TEST(SectionForms, what_is_known_of_DeepSpeed_agrees_with_the_plugins_of_this_build) {
  int64_t compared = 0;
  for (const KnownPlugin& plugin : Registry(SearchPath::standard({}, {}, "")).known())
    for (const auto& [section, fact] : known_sections().sections) {
      if (!plugin.claims(section)) continue;
      ++compared;
      EXPECT_EQ(plugin.kind, fact.kind) << section;
      EXPECT_EQ(plugin.form.number, fact.form.number) << section;
      EXPECT_EQ(plugin.form.off, fact.form.off) << section;
      EXPECT_EQ(plugin.form.off_unless_enabled, fact.form.off_unless_enabled) << section;
    }
  EXPECT_GE(compared, 6) << "zero_optimization, fp16, bf16, bfloat16, sequence_parallel_size, tensor_parallel";
}

// drivetrain_add_plugin does not see the options.
TEST(SectionForms, what_plugins_of_this_build_declare_to_change_no_bit_are_options_of_theirs) {
  const Registry registry(SearchPath::standard({}, {}, ""));
  const std::vector<DeclaredEffects> declared = declared_effects(registry);
  EXPECT_FALSE(declared.empty());
  for (const DeclaredEffects& effects : declared)
    for (const std::string& option : effects.same_bits)
      EXPECT_TRUE(registry.options(effects.kind, effects.name).find(option)) << effects.name << " " << option;
}

TEST(SectionForms, where_two_claim_a_section_the_type_decides_how_it_is_read) {
  const auto list = with("data_parallel", "mine",
                         R"("section":"zero_optimization","section_form":{"number":"level","off":{"level":0}})");
  EXPECT_EQ(params_of(R"("zero_optimization": {"type": "mine", "params": {"stage": 0}})", "mine", list),
            R"({"stage":0})");
  EXPECT_EQ(params_of(R"("zero_optimization": {"type": "mine", "params": {"level": 0}})", "mine", list),
            R"(-{"level":0})");
  EXPECT_EQ(params_of(R"("zero_optimization": {"type": "zero", "params": {"level": 0}})", "zero", list),
            R"({"level":0})");
  EXPECT_HAS(refusal(R"("zero_optimization": 3)", list), "could mean data_parallel/zero or data_parallel/mine");
}

TEST(SectionForms, the_section_of_a_kind_may_have_forms_of_the_plugin_that_claims_it) {
  const auto list =
      with("recompute", "mine", R"("section":"activation_checkpointing","section_form":{"number":"every"})");
  EXPECT_EQ(params_of(R"("activation_checkpointing": 3)", "mine", list), R"({"every":3})");
}

TEST(SectionForms, a_wrong_manifest_is_refused_with_the_key_and_what_it_wants) {
  const auto form = [](const std::string& text) {
    return manifest_error(R"("section":"my_section","section_form":)" + text);
  };
  EXPECT_EQ(form("{}"), "accepted");
  EXPECT_HAS(form("4"), "section \"my_section\" of monitor/mine: its form wants an object, found integer 4");
  EXPECT_HAS(form(R"({"numbre":"a"})"), "there is no form \"numbre\" (forms: aliases, number, on, off");
  EXPECT_HAS(form(R"({"number":4})"), "\"number\" wants the name of an option, found integer 4");
  EXPECT_HAS(form(R"({"number":""})"), "\"number\" wants the name of an option");
  EXPECT_HAS(form(R"({"on":true})"), "\"on\" wants an object of options with plain values, found boolean true");
  EXPECT_HAS(form(R"({"on":{}})"), "\"on\" wants an object of options");
  EXPECT_HAS(form(R"({"off":{"a":{}}})"), "found \"a\" with object");
  EXPECT_HAS(form(R"({"off":{"a":null}})"), "found \"a\" with null");
  EXPECT_HAS(form(R"({"off_unless_enabled":1})"), "\"off_unless_enabled\" wants true or false, found integer 1");
  EXPECT_HAS(form(R"({"aliases":"a"})"), "\"aliases\" wants a list of different names");
  EXPECT_HAS(form(R"({"aliases":["a","a"]})"), "\"aliases\" wants a list of different names");
  EXPECT_HAS(form(R"({"aliases":["my_section"]})"), "alias of itself");
  EXPECT_HAS(manifest_error(R"("section_form":{"number":"a"})"), "forms of a section, but without a SECTION");
}

TEST(SectionForms, a_section_that_means_something_else_cannot_be_claimed) {
  EXPECT_HAS(manifest_error(R"("section":"seed")"), "claims the section \"seed\": that key is a setting of the run");
  EXPECT_HAS(manifest_error(R"("section":"_mine")"), "keys that begin with _ or $ are notes");
  EXPECT_HAS(manifest_error(R"("section":"optimizer")"), "that is the section of the kind optimizer");
  EXPECT_HAS(manifest_error(R"("section":"scheduler")"), "that is the section of the kind lr_schedule");
  EXPECT_HAS(manifest_error(R"("section":"mine","section_form":{"aliases":["scheduler"]})"), "of the kind lr_schedule");
  EXPECT_EQ(manifest_error(R"("section":"scheduler")", "lr_schedule"), "accepted");
}

}  // namespace
}  // namespace drivetrain
