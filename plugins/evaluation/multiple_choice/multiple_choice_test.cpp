// evaluation/multiple_choice: rows of questions, figures of scores, and what is wrong with files.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include <drivetrain/evaluation.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

struct MultipleChoice : testing::Test {
  const Host host;
  const TempFolder folder;
  const std::string file = folder.path("q.jsonl");
  std::unique_ptr<Evaluation> evaluation;
  EvaluationFacts facts;

  void open(const std::string& lines, const std::string& more = "", int64_t length = 0, int64_t vocabulary = 256) {
    std::ofstream(file, std::ios::binary) << lines;
    evaluation = make_plugin<Evaluation>(host, "multiple_choice", "{\"files\": [\"" + file + "\"]" + more + "}");
    ModelFacts model;
    model.vocab_size = vocabulary, model.max_position_embeddings = 64;
    RunFacts run;
    if (length > 0) run.seq_length = length;
    facts = evaluation->open(run, model);
  }
  // A row as text: what the model sees, '|', and what it is asked for, '.' where nothing is.
  std::string row(int64_t index) {
    Batch batch;
    evaluation->read(index, 1, batch);
    std::string text, asked;
    for (int64_t i = 0; i < batch.tokens_BS.size(1); ++i) {
      const auto token = batch.tokens_BS[0][i].item<int64_t>(), label = batch.labels_BS[0][i].item<int64_t>();
      if (token != 0) text += static_cast<char>(token);
      if (token != 0 || label >= 0) asked += label < 0 ? '.' : static_cast<char>(label);
    }
    return text + "|" + asked;
  }
  void expect_refused(const std::string& lines, const std::vector<std::string>& parts, const std::string& more = "",
                      int64_t length = 0) {
    const std::string text = error_of([&] { open(lines, more, length); });
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "wanted: " << part << "\nfound: " << text;
  }
};

constexpr const char* kOne = R"({"context": "ab", "choices": ["c", "def"], "label": 1})";

TEST_F(MultipleChoice, a_choice_is_a_row_whose_labels_are_the_choice) {
  open(concat(kOne, "\n\n", R"({"context": "x ", "choices": ["y", "z"], "label": "0"})", "\n"));
  EXPECT_TRUE(facts.by_row);
  EXPECT_EQ(facts.rows, 4);
  EXPECT_EQ(facts.seq_length, 5);
  EXPECT_EQ(row(0), "ab |. c");
  EXPECT_EQ(row(1), "ab de|. def");
  EXPECT_EQ(row(2), "x  |  y") << "white space at the end of the prompt belongs to the choice";
}

TEST_F(MultipleChoice, fields_are_called_as_the_options_say) {
  open(R"({"question": {"stem": "why"}, "n": 3, "answers": {"text": ["u", "v"], "label": ["P", "Q"]}, "key": "Q"})",
       R"(, "prompt": "Q{n}: {question.stem}?\nA:", "choices": "answers.text", "names": "answers.label", "label": "key",
          "delimiter": "")");
  EXPECT_EQ(row(1), "Q3: why?\nA:|..........v");
  const RowScore right[] = {{2, 1}, {1, 1}};
  EXPECT_EQ(evaluation->result(right).find("acc")->as_double(), 1) << "Q is the second";
}

TEST_F(MultipleChoice, letters_and_numbers_are_labels) {
  for (const auto& [label, acc] : {std::pair{"1", 1.0}, {"\"1\"", 1.0}, {"\"B\"", 1.0}, {"0", 0.0}, {"\"A\"", 0.0}}) {
    open(concat(R"({"context": "x", "choices": ["y", "z"], "label": )", label, "}"));
    const RowScore second[] = {{2, 1}, {1, 1}};
    EXPECT_EQ(evaluation->result(second).find("acc")->as_double(), acc) << label;
  }
}

// Four questions; the shorter choice is likelier as a whole and less likely per character.
TEST_F(MultipleChoice, figures_are_those_of_the_harness) {
  std::string lines;
  for (const int right : {1, 1, 0, 1})
    lines += concat(R"({"context": "x", "choices": ["äö", "yyyy"], "label": )", right, "}\n");
  open(lines);
  std::vector<RowScore> scores;
  for (int i = 0; i < 4; ++i) scores.insert(scores.end(), {{2, 5}, {3, 5}});
  const Value figures = evaluation->result(scores);
  EXPECT_DOUBLE_EQ(figures.find("acc")->as_double(), 0.25);        // 2 < 3: the first
  EXPECT_DOUBLE_EQ(figures.find("acc_norm")->as_double(), 0.75);   // 2 / 2 characters > 3 / 4: the second
  EXPECT_DOUBLE_EQ(figures.find("acc_bytes")->as_double(), 0.25);  // 2 / 4 bytes < 3 / 4: the first
  EXPECT_DOUBLE_EQ(figures.find("acc_stderr")->as_double(), std::sqrt(0.25 * 0.75 / 3));
  EXPECT_DOUBLE_EQ(figures.find("acc_norm_stderr")->as_double(), std::sqrt(0.25 * 0.75 / 3));
  EXPECT_EQ(figures.members()[0].key, "acc");
}

TEST_F(MultipleChoice, long_prompts_lose_their_begin_and_it_is_told) {
  open(R"({"context": "abcdefgh", "choices": ["yy", "z"], "label": 0})", "", 6);
  EXPECT_EQ(facts.seq_length, 6);
  EXPECT_EQ(row(0), "efgh y|... yy") << "with 6 positions, of which the last label is no token";
  EXPECT_EQ(facts.notes.find("cut_prompts")->as_int(), 2);
  ASSERT_EQ(host.log.warnings.size(), 1u);
  EXPECT_NE(host.log.warnings[0].find("2 of 2"), std::string::npos) << host.log.warnings[0];
  expect_refused(R"({"context": "a", "choices": ["yyyyyyy", "z"], "label": 0})",
                 {"q.jsonl:1", "longer than the rows of 6"}, "", 6);
}

TEST_F(MultipleChoice, an_empty_prompt_begins_behind_the_separator_of_documents) {
  open(R"({"context": "", "choices": ["y", "zz"], "label": 0})", R"(, "delimiter": "")");
  EXPECT_EQ(row(1), "z|zz");
}

TEST_F(MultipleChoice, a_limit_takes_the_first_questions) {
  open(concat(kOne, "\n", kOne, "\n{ broken"), R"(, "limit": 2)");
  EXPECT_EQ(facts.rows, 4);
}

TEST_F(MultipleChoice, lines_that_are_no_questions_are_told_with_file_and_line) {
  const std::string good = concat(kOne, "\n");
  expect_refused(good + "{\"context\": \"a\", ", {"q.jsonl:2:"});
  expect_refused(good + "[1]", {"q.jsonl:2", "array", "object"});
  expect_refused(good + R"({"ctx": "a", "choices": ["b", "c"], "label": 0})",
                 {"q.jsonl:2", "\"context\"", "\"ctx\"", "\"prompt\""});
  expect_refused(R"({"context": "a", "endings": ["b", "c"], "label": 0})", {"q.jsonl:1", "\"choices\"", "\"endings\""});
  expect_refused(R"({"context": "a", "choices": ["b", "c"]})", {"q.jsonl:1", "\"label\""});
  expect_refused(R"({"context": "a", "choices": ["b", "c"], "label": 2})",
                 {"q.jsonl:1", "2", "out of range", "2 choices"});
  expect_refused(R"({"context": "a", "choices": ["b", "c"], "label": -1})", {"q.jsonl:1", "out of range"});
  expect_refused(R"({"context": "a", "choices": ["b", "c"], "label": "C"})", {"q.jsonl:1", "out of range"});
  expect_refused(R"({"context": "a", "choices": ["b", "c"], "label": "yes"})", {"q.jsonl:1", "yes", "\"names\""});
  expect_refused(R"({"context": "a", "choices": ["b", ""], "label": 0})", {"q.jsonl:1", "choice 1 is empty"});
  expect_refused(R"({"context": "a", "choices": ["b"], "label": 0})", {"q.jsonl:1", "1 choices"});
  expect_refused(R"({"context": "a", "choices": "b", "label": 0})", {"q.jsonl:1", "string", "list"});
  expect_refused(R"({"context": ["a"], "choices": ["b", "c"], "label": 0})", {"q.jsonl:1", "array", "text"});
  expect_refused(R"({"context": "a", "choices": ["b", "c"], "label": "x", "names": ["p", "q"]})",
                 {"q.jsonl:1", "none of the names"}, R"(, "names": "names")");
  expect_refused(R"({"context": "a", "choices": ["b", "c"], "label": "p", "names": ["p"]})", {"1 names for 2 choices"},
                 R"(, "names": "names")");
  expect_refused(kOne, {"{ is not closed"}, R"(, "prompt": "{context")");
  expect_refused("\n \n", {"no question", "q.jsonl"});
  expect_refused("\x28\xb5\x2f\xfd", {"q.jsonl is packed by zstd", "zstd -d "});
  EXPECT_NE(error_of([&] { open(kOne, "", 0, 1000); }).find("vocabulary of 1000"), std::string::npos);
  std::filesystem::remove(file);
  const auto missing = make_plugin<Evaluation>(host, "multiple_choice", "{\"files\": [\"" + file + "\"]}");
  EXPECT_NE(error_of([&] { missing->open({}, {}); }).find(file), std::string::npos);
  EXPECT_NE(error_of([&] { make_plugin<Evaluation>(host, "multiple_choice")->open({}, {}); }).find("files is empty"),
            std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
