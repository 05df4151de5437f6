// Regular expressions of names: those that people write mean what they always did, and none takes long.
#include "pattern.h"

#include <gtest/gtest.h>

#include <regex>

#include "support/plugin_under_test.h"

namespace drivetrain::lora {
namespace {

using namespace drivetrain::test;

std::string refusal(const std::string& text) {
  return error_of([&] { check_expression(text, "target_modules"); });
}

const std::vector<std::string> kPaths = {"model.layers.0.self_attn.q_proj",   "model.layers.12.mlp.down_proj",
                                         "transformer.h.3.attn.c_attn",       "lm_head",
                                         "model.visual.blocks.1.attn.q_proj", "model.layers.7.self_attn.v_proj"};

// The standard library's own way, which tries one after the other, is the reference.
TEST(LoraPattern, expressions_match_what_they_match_by_trying) {
  for (const std::string text : {".*q_proj", R"(.*\.(q|v)_proj)", R"(model\.layers\.(0|7)\..*)",
                                 R"(model\.layers\.\d{1,2}\.(self_attn|mlp)\.\w+)", R"(^(?!.*visual).*q_proj$)",
                                 R"((?!.*visual)(?=.*attn).*_(proj|attn))", "lm_head", "[a-z_.]*[0-9]+[a-z_.]*", ".*",
                                 R"(.*\.(?:[01]|12)\..*?_proj)", R"(.*\bq_proj)"}) {
    EXPECT_EQ(refusal(text), "") << text;
    for (const std::string& path : kPaths) {
      const bool wanted = std::regex_match(path, std::regex(text));
      EXPECT_EQ(names_module(Value(text), path), wanted) << text << " on " << path;
      const Value patterns = Value::Object{{text, 4}};
      const std::regex end("(.*\\.)?(" + text + ")");
      EXPECT_EQ(first_match(patterns, path) != nullptr, std::regex_match(path, end)) << text << " on " << path;
    }
  }
}

// By trying, each of these takes about 2^60 steps.
TEST(LoraPattern, repeats_within_repeats_end) {
  const std::string name(60, 'a');
  for (const std::string text : {"(a+)+$", "(a*)*", "(a|a)*", "(a|aa)+", "(.*)*", "((a+)+)+"}) {
    EXPECT_EQ(refusal(text), "") << text;
    EXPECT_EQ(names_module(Value(text), name + "!"), text == "(.*)*") << text;
    EXPECT_TRUE(names_module(Value(text), name)) << text;
    EXPECT_EQ(first_match(Value::Object{{text, 1}}, "model." + name + "!") != nullptr, text == "(.*)*") << text;
  }
}

TEST(LoraPattern, what_could_take_long_is_refused_by_key_with_what_to_write) {
  const std::pair<std::string, const char*> cases[] = {
      {R"((q|k)_proj\1)", "is no regular expression"},
      {std::string(2001, 'a'), "has 2001 characters; write at most 2000"},
      {"(a{1,100}){1,100}", "counts in {} that multiply its 17 characters to 170000; write smaller ones"},
      {"a{9999999}", "counts in {}"},
      {"(?=.*(?=.*(?!.*x)))a", "looks ahead, (?= or (?!, inside of what looks ahead"},
      {R"(\c[?(?=.*(?=.*a)).*)", "looks ahead, (?= or (?!, inside of what looks ahead"},  // \c[ opens no class
      {"([", "is no regular expression"}};
  for (const auto& [text, said] : cases) {
    const std::string told = refusal(text);
    EXPECT_EQ(told.find("target_modules: "), 0u) << told;
    EXPECT_NE(told.find(said), std::string::npos) << told;
    EXPECT_LT(told.size(), 400u) << told;
  }
  for (const char* fine : {R"(\{5\}.*)", "[(?=]*[{]*a", "(?=a)(?!b).*", R"(\((\[)?a)"})
    EXPECT_EQ(refusal(fine), "") << fine;
}

// As deep as the limits let them be.
TEST(LoraPattern, the_largest_that_are_taken_have_room_on_the_stack) {
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  for (const std::string& text :
       {repeated("(", 999) + "a" + repeated(")", 999), std::string(2000, 'a'), repeated("a|", 999) + "a",
        std::string("(a?){900}"), repeated("(?:", 399) + "a" + repeated(")*", 399), repeated("a?", 1000)}) {
    EXPECT_EQ(refusal(text), "") << text.substr(0, 20);
    EXPECT_EQ(names_module(Value(text), "a"), text != std::string(2000, 'a')) << text.substr(0, 20);
    EXPECT_FALSE(names_module(Value(text), "b")) << text.substr(0, 20);
  }
}

}  // namespace
}  // namespace drivetrain::lora
