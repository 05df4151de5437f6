#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <drivetrain/dataset.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/plugin_under_test.h"
#include "test_tokenizer.h"

namespace drivetrain::test {
namespace {

struct MarkedBytesMaker : PluginMaker {
  std::shared_ptr<Plugin> create_kind(const char*, const PluginChoice&) const override {
    return std::make_shared<MarkedBytes>();
  }
};

class Instruction : public ::testing::Test {
 protected:
  Instruction() { host_.services.plugins = &maker_, host_.services.seed = 5; }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path(name), std::ios::binary) << text;
    return folder_.path(name);
  }
  // Lines with prompts of different lengths that count up from `first`.
  static std::string lines(int first, int count) {
    std::string text;
    for (int i = first; i < first + count; ++i)
      text += line(concat("question ", i, std::string(static_cast<size_t>(i % 7), '?')), concat(i));
    return text;
  }
  static std::string line(const std::string& prompt, const std::string& response) {
    return concat(R"({"prompt": ")", prompt, R"(", "response": ")", response, "\"}\n");
  }
  std::unique_ptr<Dataset> open(const std::string& files, const std::string& more = "", int64_t vocabulary = 261) {
    auto dataset = make_plugin<Dataset>(
        host_, "instruction",
        concat(R"({"files": [")", files, R"("], "tokenizer": "marked_bytes", "template": {"roles": {"user":
               {"prefix": "U:"}, "assistant": {"prefix": "A:", "suffix": "<|eos|>"}}})",
               more.find("seq_length") == std::string::npos ? R"(, "seq_length": 40)" : "", more, "}"));
    RunFacts run;
    run.train_batch_size = 4;
    ModelFacts model;
    model.vocab_size = vocabulary;
    facts_ = dataset->open(run, model);
    return dataset;
  }
  void expect_refused(const std::string& files, const std::vector<std::string>& parts, const std::string& more = "",
                      int64_t vocabulary = 261) {
    const std::string text = error_of([&] { open(files, more, vocabulary); });
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "found: " << text << "\nwanted: " << part;
  }
  const Value& note(const char* part, const char* name) const { return *facts_.notes.find(part)->find(name); }

  TempFolder folder_;
  MarkedBytesMaker maker_;
  Host host_;
  DatasetFacts facts_;
};

std::string text_of(const at::Tensor& row) {
  const int64_t* ids = row.const_data_ptr<int64_t>();
  return MarkedBytes::text_of({ids, ids + row.numel()});
}

// The texts of a document, tokens and labels.
std::pair<std::string, std::string> document(const Documents& documents, int64_t d) {
  std::vector<int64_t> tokens(static_cast<size_t>(documents.length(d))), labels(tokens.size());
  documents.read(d, 0, documents.length(d), tokens.data(), labels.data());
  return {MarkedBytes::text_of(tokens), MarkedBytes::text_of(labels)};
}
std::set<std::string> texts(const Dataset& dataset, DataPart part) {
  std::set<std::string> all;
  const Documents* documents = dataset.documents(part);
  for (int64_t d = 0; documents && d < documents->count(); ++d) all.insert(document(*documents, d).first);
  return all;
}

Batch rows(Dataset& dataset, int64_t step, int64_t first, int64_t count, DataPart part = DataPart::train) {
  Batch batch;
  dataset.read({part, step, first, count}, batch);
  return batch;
}

TEST_F(Instruction, a_row_is_a_conversation_with_labels_on_the_response) {
  const auto dataset = open(write("a.jsonl", line("hi", "yo")), R"(, "seq_length": 12, "pad_token": 46)");
  const Batch batch = rows(*dataset, 1, 0, 1);
  EXPECT_EQ(text_of(batch.tokens_BS[0]), "U:hiA:yo....");
  EXPECT_EQ(text_of(batch.labels_BS[0]), "_____yo<|eos|>____");
  EXPECT_EQ(batch.documents, 1);
  EXPECT_EQ(batch.padding, 4);
  EXPECT_TRUE(batch.cu_seqlens.empty());
  EXPECT_FALSE(facts_.documents);
}

TEST_F(Instruction, every_conversation_comes_once_in_an_epoch_and_in_another_order_in_the_next) {
  const auto dataset = open(write("a.jsonl", lines(0, 22)));
  std::vector<std::string> seen;
  for (int64_t step = 1; step <= 11; ++step) {
    const Batch batch = rows(*dataset, step, 0, 4);
    for (int64_t i = 0; i < 4; ++i) seen.push_back(text_of(batch.tokens_BS[i]));
  }
  const std::vector<std::string> first(seen.begin(), seen.begin() + 22), second(seen.begin() + 22, seen.end());
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 22u);
  EXPECT_EQ(std::set<std::string>(second.begin(), second.end()).size(), 22u);
  EXPECT_NE(first, second);
}

TEST_F(Instruction, documents_are_the_conversations_in_the_order_of_the_files) {
  const auto dataset =
      open(write("a.jsonl", "\n" + line("p", "q") + "  \r\n") + "\", \"" + write("b.jsonl", line("r", "st")));
  const Documents& documents = *dataset->documents(DataPart::train);
  ASSERT_EQ(documents.count(), 2);
  EXPECT_EQ(document(documents, 0), std::pair(std::string("U:pA:q"), std::string("____q<|eos|>")));
  EXPECT_EQ(document(documents, 1), std::pair(std::string("U:rA:st"), std::string("____st<|eos|>")));
  std::vector<int64_t> tokens(2), labels(2);
  documents.read(1, 4, 2, tokens.data(), labels.data());
  EXPECT_EQ(MarkedBytes::text_of(tokens) + MarkedBytes::text_of(labels), ":sst");
  EXPECT_EQ(dataset->documents(DataPart::validation), nullptr);
}

TEST_F(Instruction, a_long_conversation_is_refused_cut_or_dropped_and_told) {
  const std::string file =
      write("a.jsonl", line("hi", "yo") + line("hi", "a longer answer") + line("a long question", "no"));
  expect_refused(file, {"a.jsonl:2: ", "21 positions, max_length is 12", "too_long"}, R"(, "max_length": 12)");
  auto dataset = open(file, R"(, "max_length": 12, "too_long": "cut")");
  EXPECT_EQ(texts(*dataset, DataPart::train), (std::set<std::string>{"U:hiA:yo", "U:hiA:a long"}))
      << "what is cut to a question alone is nothing to learn from";
  EXPECT_EQ(note("train", "cut").as_int(), 1);
  EXPECT_EQ(note("train", "dropped").as_int(), 1);
  EXPECT_NE(host_.log.lines.back().find("1 cut to 12; 1 "), std::string::npos) << host_.log.lines.back();
  dataset = open(file, R"(, "max_length": 12, "too_long": "drop")");
  EXPECT_EQ(texts(*dataset, DataPart::train), std::set<std::string>{"U:hiA:yo"});
  EXPECT_EQ(note("train", "dropped").as_int(), 2);
}

// What would train or evaluate nothing is told before the first step, as bad data are, with its files and what to do.
TEST_F(Instruction, a_set_in_which_nothing_is_learned_is_refused) {
  const auto expect_io = [&](const std::string& files, const std::string& more, std::vector<std::string> parts) {
    try {
      open(files, more);
      ADD_FAILURE() << "nothing was refused; wanted " << parts.front();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::io);
      for (const std::string& part : parts) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  const std::string file = write("a.jsonl", line("a long question", "x") + line("another long question", "y"));
  const std::string good = write("b.jsonl", line("p", "q")), empty = write("empty.jsonl", "\n");
  for (const char* way : {"cut", "drop"})
    expect_io(
        file, concat(R"(, "max_length": 12, "too_long": ")", way, "\""),
        {"nothing is learned from files (" + file + ")", "its 2 conversations", "max_length 12", "set max_length"});
  expect_io(good, concat(R"(, "max_length": 12, "too_long": "drop", "validation_files": [")", file, "\"]"),
            {"nothing is learned from validation_files (" + file + ")", "its 2 conversations"});
  expect_io(empty, "", {"nothing is learned from files (" + empty + ")", "no conversation in it", "name files"});
  expect_io(good, R"(, "validation_fraction": 1)", {"what validation_fraction leaves of files"});
  expect_io(good, concat(R"(, "validation_files": [")", empty, "\"]"), {"validation_files (" + empty + ")"});
}

TEST_F(Instruction, a_packed_file_is_refused_with_the_way_to_unpack_it) {
  const std::string packed = write("a.jsonl.gz", "\x1f\x8b\x08");
  expect_refused(packed, {"dataset/instruction: " + packed, "packed by gzip", "gzip -dk " + packed});
}

TEST_F(Instruction, the_fraction_held_out_depends_on_each_line_alone) {
  const auto part = [&](const std::string& name, const std::string& text) {
    const auto dataset = open(write(name, text), R"(, "validation_fraction": 0.2)");
    return std::pair(texts(*dataset, DataPart::train), texts(*dataset, DataPart::validation));
  };
  const auto [train, held] = part("a.jsonl", lines(0, 1000));
  EXPECT_EQ(train.size() + held.size(), 1000u);
  EXPECT_NEAR(static_cast<double>(held.size()), 200, 5 * std::sqrt(1000 * 0.2 * 0.8));
  const auto [later_train, later_held] = part("b.jsonl", lines(1000, 500) + lines(0, 1000));
  for (const std::string& text : held) EXPECT_TRUE(later_held.contains(text)) << text;
  for (const std::string& text : train) EXPECT_TRUE(later_train.contains(text)) << text;
}

TEST_F(Instruction, files_may_be_held_out) {
  const std::string held = write("held.jsonl", line("v", "w"));
  const auto dataset = open(write("a.jsonl", lines(0, 5)), concat(R"(, "validation_files": [")", held, "\"]"));
  EXPECT_TRUE(facts_.validation);
  EXPECT_EQ(text_of(rows(*dataset, 1, 3, 1, DataPart::validation).tokens_BS[0]).substr(0, 6), "U:vA:w");
  expect_refused(write("a.jsonl", lines(0, 5)), {"validation_files and validation_fraction"},
                 concat(R"(, "validation_fraction": 0.5, "validation_files": [")", held, "\"]"));
}

TEST_F(Instruction, without_a_validation_part_reading_it_says_what_to_set) {
  const auto dataset = open(write("a.jsonl", lines(0, 5)));
  EXPECT_FALSE(facts_.validation);
  EXPECT_NE(error_of([&] { rows(*dataset, 1, 0, 1, DataPart::validation); }).find("validation_fraction"),
            std::string::npos);
}

TEST_F(Instruction, a_broken_line_is_named_with_its_file_and_number) {
  expect_refused(write("a.jsonl", lines(0, 40) + "\n{\"prompt\": \n" + lines(0, 3) + "nonsense\n"),
                 {"a.jsonl:42: column ", "not valid JSON"});
  expect_refused(write("a.jsonl", lines(0, 3) + "{\"text\": \"x\"}"), {"a.jsonl:4: ", "it has \"text\""});
  expect_refused(folder_.path("none.jsonl"), {"none.jsonl does not exist"});
  expect_refused(folder_.path(), {"no regular file"});
}

TEST_F(Instruction, a_tokenizer_that_knows_more_than_the_model_is_refused) {
  const std::string file = write("a.jsonl", lines(0, 3));
  expect_refused(file, {"tokenizer/marked_bytes has 261 tokens", "vocab_size is 256"}, "", 256);
  expect_refused(file, {"pad_token is 300"}, R"(, "pad_token": 300)");
  expect_refused(file, {"max_length 50 is more than seq_length 40"}, R"(, "max_length": 50)");
}

TEST_F(Instruction, a_file_that_is_changed_while_it_is_used_is_an_error_of_the_data) {
  const std::string file = write("a.jsonl", line("hello", "world"));
  const auto dataset = open(file);
  const auto code_and_text = [&] {
    try {
      rows(*dataset, 1, 0, 1);
    } catch (const Error& e) {
      return concat(static_cast<int>(e.code()), " ", e.what());
    }
    return std::string();
  };
  EXPECT_EQ(code_and_text(), "");
  write("a.jsonl", line("hello", "words"));
  EXPECT_EQ(code_and_text().rfind("8 ", 0), 0u) << code_and_text();
  EXPECT_NE(code_and_text().find("a.jsonl"), std::string::npos) << code_and_text();
  std::filesystem::resize_file(file, 10);
  EXPECT_NE(code_and_text().find("cut short"), std::string::npos) << code_and_text();
}

TEST_F(Instruction, a_file_that_is_replaced_is_read_as_it_was) {
  const auto dataset = open(write("a.jsonl", line("hello", "world")));
  std::filesystem::rename(folder_.path("a.jsonl"), folder_.path("old.jsonl"));
  write("a.jsonl", "another file");
  EXPECT_EQ(text_of(rows(*dataset, 1, 0, 1).tokens_BS[0]).substr(0, 14), "U:helloA:world");
}

// Longer than what is read at once, with lines that begin in one block and end in the next.
TEST_F(Instruction, lines_of_large_files_are_found) {
  const std::string filler(30'000, 'x');
  std::string text;
  for (int i = 0; i < 400; ++i) text += concat("{\"more\": \"", filler, "\", ", line(concat("q", i), "r").substr(1));
  text.pop_back();  // a last line without an end
  const auto dataset = open(write("a.jsonl", text));
  const Documents& documents = *dataset->documents(DataPart::train);
  ASSERT_EQ(documents.count(), 400);
  for (const int64_t d : {0, 1, 278, 279, 280, 281, 399})
    EXPECT_EQ(document(documents, d).first, concat("U:q", d, "A:r"));
}

TEST_F(Instruction, epochs_are_told_when_they_are_reached) {
  const auto dataset = open(write("a.jsonl", lines(0, 10)));  // four rows a step
  const auto read = [&](int64_t step) {
    Batch batch;
    dataset->read({DataPart::train, step, 0, 2}, batch);
  };
  const size_t before = host_.log.lines.size();
  read(1), read(2);
  EXPECT_EQ(host_.log.lines.size(), before);
  read(3), read(3), read(4);
  ASSERT_EQ(host_.log.lines.size(), before + 1);
  EXPECT_NE(host_.log.lines.back().find("step 3 reaches epoch 2"), std::string::npos) << host_.log.lines.back();
}

TEST_F(Instruction, files_have_the_shares_of_their_weights) {
  const std::string few = write("few.jsonl", lines(0, 5)), many = write("many.jsonl", lines(100, 15));
  const auto dataset = open(few + "\", \"" + many, R"(, "weights": [3, 1])");
  std::vector<std::string> seen;
  for (int64_t step = 1; step <= 15; ++step)  // three epochs of 20 rows
    for (int64_t row = 0; row < 4; ++row) seen.push_back(text_of(rows(*dataset, step, row, 1).tokens_BS[0]));
  std::map<std::string, int> of_few, of_many;
  for (const std::string& text : seen)
    ++(text.find("question 1") == 2 && std::isdigit(text[12]) ? of_many : of_few)[text];
  EXPECT_EQ(of_few.size(), 5u);
  EXPECT_EQ(of_many.size(), 15u) << "no conversation comes again before all of its file came";
  for (const auto& [text, times] : of_few) EXPECT_EQ(times, 9) << text;
  for (const auto& [text, times] : of_many) EXPECT_EQ(times, 1) << text;
  const Documents& documents = *dataset->documents(DataPart::train);
  EXPECT_EQ(documents.count(), 20);
  std::set<std::string> first;
  for (int64_t d = 0; d < 15; ++d) first.insert(document(documents, d).first);
  EXPECT_EQ(first.size(), 5u) << "a packed epoch has fifteen of the five";
}

TEST_F(Instruction, weights_that_make_no_mixture_are_refused) {
  const std::string file = write("a.jsonl", lines(0, 3)), empty = write("empty.jsonl", "\n");
  expect_refused(file, {"weights has 2 numbers, files 1 names"}, R"(, "weights": [1, 2])");
  expect_refused(file, {"every weight is 0"}, R"(, "weights": [0])");
  expect_refused(file + "\", \"" + empty, {"files[1] has the weight 1 and no conversation"}, R"(, "weights": [1, 1])");
}

TEST_F(Instruction, a_template_in_jinja_is_that_of_a_file_or_of_the_tokenizer) {
  const std::string file = write("a.jsonl", line("hi", "yo"));
  write("t.jinja", "{% for m in messages %}{{ m.role[0] ~ prefix ~ m.content }}{% endfor %}");
  const auto with = [&](const std::string& options) {
    auto dataset = make_plugin<Dataset>(
        host_, "instruction",
        concat(R"({"files": [")", file, R"("], "tokenizer": "marked_bytes", "seq_length": 20, )", options, "}"));
    RunFacts run;
    run.train_batch_size = 4;
    ModelFacts model;
    model.vocab_size = 261;
    dataset->open(run, model);
    return document(*dataset->documents(DataPart::train), 0);
  };
  const std::string of_file = concat(R"("template_file": ")", folder_.path("t.jinja"), "\"");
  EXPECT_EQ(with(of_file + R"(, "template_options": {"prefix": "="})"),
            std::pair(std::string("u=hia=y"), std::string("___a=yo")));
  const auto refused = [&](const std::string& options) { return error_of([&] { with(options); }); };
  EXPECT_NE(refused(R"("template": "tokenizer")").find("tokenizer/marked_bytes has no chat template"),
            std::string::npos);
  EXPECT_NE(refused(of_file + R"(, "template": "tokenizer")").find("exclude each other"), std::string::npos);
  EXPECT_NE(refused(R"("template_name": "x")").find("of a template in Jinja"), std::string::npos);
  EXPECT_NE(refused(of_file + R"(, "template_name": "x")").find("no chat template \"x\""), std::string::npos);
  // A folder with several, in both of the places where transformers keeps them.
  std::filesystem::create_directories(folder_.path("named/additional_chat_templates"));
  const std::string of_folder = concat(R"("template_file": ")", folder_.path("named"), "\"");
  write("named/additional_chat_templates/short.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_NE(refused(of_folder).find("there are \"short\". Name one of them\n   template_name"), std::string::npos);
  EXPECT_EQ(with(of_folder + R"(, "template_name": "short")").first, "hiy");
  std::filesystem::remove_all(folder_.path("named/additional_chat_templates"));
  write("named/tokenizer_config.json", R"({"chat_template": [{"name": "default", "template":
      "{% for m in messages %}{{ m.role[0] ~ m.content }}{% endfor %}"}, {"name": "rag", "template":
      "{% for m in messages %}<{{ m.content }}{% endfor %}"}]})");
  EXPECT_EQ(with(of_folder).first, "uhiay");
  EXPECT_EQ(with(of_folder + R"(, "template_name": "rag")").first, "<hi<y");
  EXPECT_NE(refused(of_folder + R"(, "template_name": "x")").find("there are \"default\", \"rag\""), std::string::npos);
  write("t.jinja", "{% for m in messages %}\n{{ m.content | frob }}{% endfor %}");
  EXPECT_NE(refused(of_file).find("a.jsonl:1: "), std::string::npos) << refused(of_file);
  EXPECT_NE(refused(of_file).find("t.jinja, line 2: the template calls what is not there"), std::string::npos);
  write("t.jinja", "{% for m in messages %}");
  EXPECT_NE(refused(of_file).find("t.jinja, line 1: the chat template does not parse"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
