// Questions with several choices: the model takes the one that is likeliest behind the prompt. Each choice is one row,
// whose labels are the tokens of the choice. Figures are those of EleutherAI's lm-evaluation-harness.
#include <drivetrain/evaluation.h>
#include <drivetrain/log.h>
#include <drivetrain/services.h>

#include <drivetrain/toolkit/evaluation/text_codec.h>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "questions.h"

namespace {

using namespace drivetrain;
using namespace drivetrain::multiple_choice;

constexpr int64_t kIgnored = -100;

// Code points, as Python counts the length of a string.
double characters_of(const std::string& text) {
  const auto begins = [](unsigned char c) { return (c & 0xC0) != 0x80; };
  return static_cast<double>(std::count_if(text.begin(), text.end(), begins));
}

// The mean of zeros and ones with its standard error, from the sample's variance.
void add_share(Value& figures, const std::string& name, double right, double all) {
  const double mean = right / all;
  figures.set(name, mean);
  if (all > 1) figures.set(name + "_stderr", std::sqrt(mean * (1 - mean) / (all - 1)));
}

class MultipleChoice : public Evaluation {
 public:
  struct Options {
    std::vector<std::string> files;
    std::string prompt = "{context}", choices = "choices", label = "label", names, delimiter = " ";
    std::optional<PluginChoice> tokenizer;
    std::string tokenizer_folder;
    std::optional<int64_t> limit;
  };
  static OptionTable options() {
    using O = Options;
    return table<O>()
        .field("files", &O::files, "JSONL files, one question per line")
        .path()
        .field("prompt", &O::prompt, "text before the choices; {NAME} stands for a field of the line")
        .field("choices", &O::choices, "field with the list of choices; dots lead into further objects")
        .field("label", &O::label, "field with the right choice: its number from 0, its letter, or its name")
        .field("names", &O::names, "field with the names of the choices; empty: numbers or letters")
        .field("delimiter", &O::delimiter, "text between prompt and choice")
        .field("tokenizer", &O::tokenizer, "the model's tokenizer; null: its tokens are bytes")
        .plugin(Tokenizer::kKind)
        .field("tokenizer_folder", &O::tokenizer_folder,
               "where the tokenizer's files are, if its options do not say it")
        .path()
        .field("limit", &O::limit, "first questions that are asked; null: all")
        .at_least(1);
  }

  MultipleChoice(const Options& options, const Services& services) : options_(options), services_(services) {}

  Value options_for(const std::string& file) const override {
    if (!file.ends_with(".jsonl")) return {};
    return Value::Object{{"files", Value::Array{file}}};
  }

  EvaluationFacts open(const RunFacts& run, const ModelFacts& model) override {
    const Options& o = options_;
    if (o.files.empty()) throw fail(ErrorCode::config, "evaluation/multiple_choice: files is empty; name JSONL files");
    const auto questions = read_questions(o.files, {o.prompt, o.choices, o.label, o.names}, o.limit);
    if (questions.empty())
      throw fail(ErrorCode::config, "evaluation/multiple_choice: there is no question in ", o.files.front(),
                 o.files.size() > 1 ? " and the other files" : "");
    const TextCodec codec("evaluation/multiple_choice", {o.tokenizer, o.tokenizer_folder}, model, services_);
    const int64_t most = run.seq_length.value_or(model.max_position_embeddings);
    for (const Question& question : questions) ask(question, codec, most);
    EvaluationFacts facts;
    facts.rows = static_cast<int64_t>(rows_.size()), facts.by_row = true;
    for (const Row& row : rows_) facts.seq_length = std::max(facts.seq_length, length(row));
    facts.notes = Value::Object{{"questions", static_cast<int64_t>(asked_.size())}, {"cut_prompts", cut_}};
    if (cut_ > 0 && services_.rank == 0)
      services_.log.warning(concat("evaluation/multiple_choice: ", cut_, " of ", rows_.size(),
                                   " prompts with a choice ", "are longer than ", most,
                                   " tokens; they lose their first ones"));
    return facts;
  }

  void read(int64_t first_row, int64_t rows, Batch& batch) override {
    int64_t S = 0;
    for (const Row& row : rows_) S = std::max(S, length(row));
    const auto whole = at::TensorOptions(at::kLong);
    batch.tokens_BS = at::zeros({rows, S}, whole), batch.labels_BS = at::full({rows, S}, kIgnored, whole);
    int64_t* tokens = batch.tokens_BS.mutable_data_ptr<int64_t>();
    int64_t* labels = batch.labels_BS.mutable_data_ptr<int64_t>();
    for (int64_t r = first_row; r < first_row + rows; ++r, tokens += S, labels += S) {
      const Row& row = rows_.at(static_cast<size_t>(r));
      for (int64_t i = 0; i < length(row); ++i) tokens[i] = row.tokens[i];
      for (int64_t i = length(row) - row.scored; i < length(row); ++i) labels[i] = row.tokens[i + 1];
    }
  }

  Value result(std::span<const RowScore> scores) override {
    double plain = 0, by_characters = 0, by_bytes = 0;
    for (const Asked& one : asked_) {
      const auto choices = scores.subspan(one.first, one.bytes.size());
      const auto hit = [&](const auto& weight) {
        size_t best = 0;
        for (size_t i = 1; i < choices.size(); ++i)
          if (choices[i].loss / weight(i) < choices[best].loss / weight(best)) best = i;
        return best == one.right ? 1.0 : 0.0;
      };
      plain += hit([](size_t) { return 1.0; });
      by_characters += hit([&](size_t i) { return one.characters[i]; });
      by_bytes += hit([&](size_t i) { return one.bytes[i]; });
    }
    const auto all = static_cast<double>(asked_.size());
    Value figures = Value::object();
    add_share(figures, "acc", plain, all);
    add_share(figures, "acc_norm", by_characters, all);
    add_share(figures, "acc_bytes", by_bytes, all);
    return figures;
  }

 private:
  // A prompt with one of its choices.
  struct Row {
    std::vector<int32_t> tokens;
    int64_t scored = 0;  // of them, at the end
  };
  struct Asked {
    size_t right = 0, first = 0;  // the right choice; the first of its rows
    std::vector<double> characters, bytes;
  };

  // The last token is predicted only.
  static int64_t length(const Row& row) { return static_cast<int64_t>(row.tokens.size()) - 1; }

  void ask(const Question& question, const TextCodec& codec, int64_t most) {
    Asked one;
    one.right = static_cast<size_t>(question.right), one.first = rows_.size();
    // White space at the end of a prompt belongs to the choice: tokenizers put it in front of words.
    const size_t end = question.prompt.find_last_not_of(" \t\n\r\f\v") + 1;
    const std::string prompt = question.prompt.substr(0, end);
    const std::string between = question.prompt.substr(end) + options_.delimiter;
    for (const std::string& choice : question.choices) {
      rows_.push_back(row_of(prompt, between + choice, codec, question.where));
      one.characters.push_back(characters_of(choice)), one.bytes.push_back(static_cast<double>(choice.size()));
      Row& row = rows_.back();
      if (row.scored > most)
        throw fail(ErrorCode::config, "evaluation/multiple_choice: ", question.where, ": a choice of ", row.scored,
                   " tokens is longer than the rows of ", most, "\n   leave it out, or use longer rows");
      if (length(row) <= most) continue;
      row.tokens.erase(row.tokens.begin(), row.tokens.end() - (most + 1));
      ++cut_;
    }
    asked_.push_back(std::move(one));
  }

  // Where the tokens of the prompt alone end, the choice begins.
  static Row row_of(const std::string& prompt, const std::string& rest, const TextCodec& codec,
                    const std::string& where) {
    Row row;
    row.tokens = codec.encode(prompt + rest);
    size_t before = codec.encode(prompt).size();
    if (before == 0) {
      if (!codec.begin())
        throw fail(ErrorCode::config, "evaluation/multiple_choice: ", where,
                   ": the prompt is empty, and the tokenizer has no token to begin a text with");
      row.tokens.insert(row.tokens.begin(), *codec.begin()), before = 1;
    }
    if (row.tokens.size() <= before)
      throw fail(ErrorCode::config, "evaluation/multiple_choice: ", where, ": a choice has no tokens of its own");
    row.scored = static_cast<int64_t>(row.tokens.size() - before);
    return row;
  }

  const Options options_;
  const Services& services_;
  std::vector<Row> rows_;
  std::vector<Asked> asked_;
  int64_t cut_ = 0;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Evaluation, "multiple_choice", MultipleChoice)
