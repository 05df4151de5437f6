// The conformance suite of evaluation over every built implementation, on files written here.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include <drivetrain/evaluation.h>

#include <drivetrain/testkit/kit/suite.h>
#include <drivetrain/testkit/kit/temp_folder.h>

namespace drivetrain::test {
namespace {

std::string write(const TempFolder& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder.path(name), std::ios::binary) << text;
  return folder.path(name);
}

// Texts of several rows and of a part of one.
Value perplexity_options(const TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 70; ++i) text += concat("line ", i * i, "\n");
  return Value::Object{{"files", Value::Array{write(folder, "long.txt", text), write(folder, "short.txt", "A word.")}}};
}

// Short and long prompts, choices of one letter and of many.
Value multiple_choice_options(const TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 7; ++i)
    text += concat(R"({"context": ")", std::string(static_cast<size_t>(9 * i), 'x'), R"(?", "choices": ["a", "bb )", i,
                   R"(", "three words here"], "label": )", i % 3, "}\n");
  return Value::Object{{"files", Value::Array{write(folder, "questions.jsonl", text)}}};
}

TEST(EvaluationConformance, every_built_evaluation_passes) {
  const TempFolder folder;
  const std::map<std::string, Value> options = {
      {"perplexity", perplexity_options(folder)},
      {"multiple_choice", multiple_choice_options(folder)},
  };
  for (const std::string& name : installed_plugins().names(Evaluation::kKind)) {
    const auto found = options.find(name);
    run_suite({Evaluation::kKind, name, found == options.end() ? Value::object() : found->second});
  }
}

}  // namespace
}  // namespace drivetrain::test
