// What the reader does with each key of its table: each is added to a line once. And what it says of those it leaves
// out.
#include "line_keys.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/temp_folder.h>

#include "encoder.h"
#include "spoken.h"
#include "support/key_table_rows.h"
#include "test_tokenizer.h"

namespace drivetrain::test {
namespace {

using namespace instruction;

const MarkedBytes kMarked;
constexpr const char* kTurns = R"({"role": "user", "content": "one"}, {"role": "assistant", "content": "two")";
constexpr const char* kMore = R"(}, {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"}]})";

// What is learned, "_" for each token that is not; behind "|" what is not read.
std::string read(const std::string& line, const FieldNames& names = {}) {
  const Conversation conversation = parse_conversation(line, names);
  const Encoded e = Encoder(kMarked,
                            read_template(parse_json(R"({"separator": ";", "roles": {"system": {},
      "user": {}, "assistant": {"suffix": "!"}}})",
                                                     "test")),
                            {"assistant"})
                        .encode(conversation.messages);
  std::vector<int64_t> all(e.tokens.begin(), e.tokens.end()), of_those(all);
  for (size_t i = 0; i < all.size(); ++i)
    if (!e.learned[i]) of_those[i] = -100;
  std::string text = MarkedBytes::text_of(all) + " " + MarkedBytes::text_of(of_those);
  for (const std::string& key : conversation.unread) text += "|" + key;
  return text;
}

// A line of messages with something added to its object or to the first answer.
std::string with(const std::string& of, const std::string& member) {
  const bool on_line = of == kLine;
  return concat("{", on_line ? member + ", " : "", R"("messages": [)", kTurns, on_line ? "" : ", " + member, kMore);
}

struct Change {
  std::string line, otherwise;  // two lines that differ in the key alone
};

// Of the keys that are read. Those that have one name with another key of the line stand in a line of that kind.
std::map<std::string, Change> changes() {
  const std::string same = with(kLine, R"("x": null)");
  const auto message = [&](const std::string& member) { return Change{with(kMessage, member), same}; };
  const auto prompt = [](const std::string& more, const std::string& otherwise) {
    return Change{R"({"prompt": "p", "response": "r")" + more + "}",
                  R"({"prompt": "p", "response": "r")" + otherwise + "}"};
  };
  const auto alpaca = [](const std::string& members) { return "{" + members + "}"; };
  const std::string whole = alpaca(R"("instruction": "i", "input": "n", "output": "o")");
  return {{"line messages", {same, R"({"messages": [{"role": "assistant", "content": "else"}]})"}},
          {"line prompt", {R"({"prompt": "q", "response": "r"})", R"({"prompt": "p", "response": "r"})"}},
          {"line response", {R"({"prompt": "p", "response": "s"})", R"({"prompt": "p", "response": "r"})"}},
          {"line instruction", {whole, alpaca(R"("instruction": "j", "input": "n", "output": "o")")}},
          {"line input", {whole, alpaca(R"("instruction": "i", "input": "", "output": "o")")}},
          {"line output", {whole, alpaca(R"("instruction": "i", "input": "n", "output": "q")")}},
          {"line system", {with(kLine, R"("system": "be nice")"), same}},
          {"line history", prompt(R"(, "history": [["a", "b"]])", "")},
          {"line conversations",
           {R"({"conversations": [{"from": "gpt", "value": "a"}]})",
            R"({"conversations": [{"from": "gpt", "value": "b"}]})"}},
          {"message from",
           {R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})",
            R"({"conversations": [{"from": "gpt", "value": "a"}, {"from": "gpt", "value": "b"}]})"}},
          {"message value",
           {R"({"conversations": [{"from": "gpt", "value": "a"}]})",
            R"({"conversations": [{"from": "gpt", "value": "b"}]})"}},
          {"message role", {with(kLine, R"("x": null)"), R"({"messages": [{"role": "user", "content": "one"},
              {"role": "user", "content": "two"}, {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"}]})"}},
          {"message content", {same, R"({"messages": [{"role": "user", "content": "one"},
              {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"}]})"}},
          {"message weight", message(R"("weight": 0)")},
          {"message train", message(R"("train": false)")},
          {"message loss", message(R"("loss": false)")}};
}

TEST(LineKeys, every_key_of_the_table_does_what_the_table_says) {
  const std::map<std::string, Change> read_keys = changes();
  const std::string plain = read(with(kLine, R"("x": null)"));
  for (const KeyRow& key : line_keys()) {
    const bool on_line = key.of == std::string(kLine);
    const std::string name = concat(key.of, " ", key.names);
    if (key.use == KeyUse::honoured) {
      ASSERT_TRUE(read_keys.contains(name)) << name;
      EXPECT_NE(read(read_keys.at(name).line), read(read_keys.at(name).otherwise)) << name;
      continue;
    }
    const std::string found = read(with(key.of, concat("\"", key.names, R"(": ["something"])")));
    EXPECT_EQ(found, concat(plain, "|", on_line ? "" : "messages[].", key.names));
  }
}

TEST(LineKeys, the_readme_has_the_table) {
  std::vector<std::string> rows;
  for (const KeyRow& key : line_keys()) rows.push_back(readme_row(key));
  EXPECT_EQ(rows_missing_in(DRIVETRAIN_SOURCE_DIR "/plugins/dataset/instruction/README.md", rows), "");
}

TEST(LineKeys, keys_that_say_nothing_are_no_loss) {
  const std::string plain = read(with(kLine, R"("x": null)"));
  EXPECT_EQ(read(with(kMessage, R"("tool_calls": [], "weight": 1, "train": true, "name": null)")), plain);
  EXPECT_EQ(read(with(kLine, R"("tools": [], "system": "")")), plain);
  EXPECT_EQ(read(with(kLine, R"("id": 7)")), plain + "|id");
  FieldNames names;
  names.ignored = {"id"};
  EXPECT_EQ(read(with(kLine, R"("id": 7)"), names), plain);
}

TEST(LineKeys, a_message_may_say_itself_whether_it_is_learned) {
  const std::string turns = R"({"messages": [{"role": "user", "content": "a", "train": true},
      {"role": "assistant", "content": "b", "weight": 0}, {"role": "assistant", "content": "c", "loss": true}]})";
  EXPECT_EQ(read(turns), "a;b!;c! a____c!");
  const auto refused = [](const std::string& member) { return error_of([&] { read(with(kMessage, member)); }); };
  for (const char* part :
       {"\"weight\" of messages[1] is 0.5; wanted 0", "write 0 or 1 in its place", "stands in the file n times"})
    EXPECT_NE(refused(R"("weight": 0.5)").find(part), std::string::npos) << part;
  EXPECT_NE(refused(R"("train": "no")").find("\"train\" of messages[1] is string; wanted true or false"),
            std::string::npos);
  EXPECT_NE(refused(R"("train": true, "weight": 0)").find("says otherwise"), std::string::npos);
}

TEST(LineKeys, alpaca_is_read_in_its_own_words) {
  const std::string without = read(R"({"instruction": "do it", "input": "", "output": "done"})");
  EXPECT_EQ(without.substr(0, without.find(" _")),
            "Below is an instruction that describes a task. Write a response that appropriately completes the "
            "request.\n\n### Instruction:\ndo it\n\n### Response:;done!");
  const std::string with_input = read(R"({"instruction": "do it", "input": "here", "output": "done"})");
  EXPECT_EQ(with_input.substr(0, with_input.find(" _")),
            "Below is an instruction that describes a task, paired with an input that provides further context. Write "
            "a response that appropriately completes the request.\n\n### Instruction:\ndo it\n\n### Input:\nhere\n\n"
            "### Response:;done!");
  FieldNames names;
  names.prompt = "instruction", names.response = "output";
  EXPECT_EQ(read(R"({"instruction": "do it", "input": "here", "output": "done"})", names),
            "do it;done! ______done!|input")
      << "who renames the fields has other words, and is told what is lost";
}

TEST(LineKeys, a_system_text_and_earlier_turns_come_first) {
  EXPECT_EQ(read(R"({"prompt": "p", "response": "r", "system": "s", "history": [["a", "b"], ["c", "d"]]})"),
            "s;a;b!;c;d!;p;r! ____b!___d!___r!");
  const std::string both = error_of([] {
    read(R"({"system": "s", "messages": [{"role": "system", "content": "t"}, {"role": "assistant", "content": "u"}]})");
  });
  EXPECT_NE(both.find("\"system\" and a first message of that role"), std::string::npos) << both;
  EXPECT_NE(error_of([] { read(R"({"prompt": "p", "response": "r", "history": ["a"]})"); }).find("pairs of texts"),
            std::string::npos);
}

TEST(LineKeys, what_is_not_read_may_be_anything) {
  const std::string plain = read(R"({"prompt": "p", "response": "r"})");
  for (const char* odd : {"NaN", "-Infinity", "1e999", "123456789012345678901234567890", "18446744073709551615",
                          R"("\ud800")", R"({"a": 1, "a": 2})", R"([{"a": 1, "a": NaN}])"})
    EXPECT_EQ(read(concat(R"({"m": )", odd, R"(, "m": 1, "prompt": "p", "response": "r"})")), plain + "|m") << odd;
  EXPECT_EQ(read("\xef\xbb\xbf{\"prompt\": \"p\", \"response\": \"r\"}"), plain) << "a mark in front";
  EXPECT_NE(error_of([] { read(R"({"prompt": "\udc00", "response": "r"})"); }).find("surrogate"), std::string::npos);
}

TEST(LineKeys, what_is_lost_is_said_with_how_often_and_where_first) {
  Figures figures;
  figures.unread = {{"messages[].tool_calls", {3, "a.jsonl:2"}}, {"id", {7, "a.jsonl:1"}}, {"meta", {1, "a.jsonl:5"}}};
  Host host;
  say_unread_keys(figures, {}, host.log);
  ASSERT_EQ(host.log.lines.size(), 1u);
  ASSERT_EQ(host.log.warnings.size(), 1u);
  EXPECT_EQ(host.log.lines[0], "dataset/instruction: keys that are not read: \"id\" (7 lines), \"meta\" (1 lines)");
  for (const char* part : {"\"messages[].tool_calls\" is not read", "3 lines", "a.jsonl:2", "the calls"})
    EXPECT_NE(host.log.warnings[0].find(part), std::string::npos) << host.log.warnings[0];
}

TEST(Template, marks_are_names_in_angle_brackets) {
  const auto marks = marks_of("a<|im_start|>user\n</s> < b> <>c<x");
  EXPECT_EQ(std::vector<std::string>(marks.begin(), marks.end()), (std::vector<std::string>{"<|im_start|>", "</s>"}));
}

TEST(Template, a_control_token_can_be_written_and_a_mark_that_is_no_token_is_told) {
  UnknownMarks unknown;
  const std::vector<int32_t> ids = encode_template_text(kMarked, "x</s>y<|eos|><|end|>", unknown);
  const std::vector<int32_t> wanted = {'x', 260, 'y', 259, '<', '|', 'e', 'n', 'd', '|', '>'};
  EXPECT_EQ(ids, wanted);
  EXPECT_EQ(unknown, (UnknownMarks{{"<|end|>", 7}}));
  Host host;
  say_unknown_marks(unknown, "marked", host.log);
  EXPECT_NE(host.log.warnings.at(0).find("no tokens of tokenizer/marked and are encoded as text: <|end|> (7 tokens)"),
            std::string::npos);
}

TEST(Template, answers_end_with_the_first_mark_behind_them) {
  const auto ends = [](const std::string& text) {
    return Encoder(kMarked, read_template(parse_json(text, "test")), {"assistant"}).ends();
  };
  EXPECT_EQ(ends("null"), std::vector<int32_t>{257}) << "ChatML";
  EXPECT_EQ(ends(R"({"eos": "</s>", "roles": {"assistant": {"suffix": "."}}})"), std::vector<int32_t>{260});
  EXPECT_EQ(ends(R"({"roles": {"assistant": {"suffix": "!"}}})"), std::vector<int32_t>{});
}

TEST(Template, what_the_tokenizer_puts_in_front_of_texts_stands_there_unless_the_template_says_otherwise) {
  MarkedBytes tokenizer;
  tokenizer.prefix = {258};
  const auto text = [&](const std::string& bos) {
    const std::string chat = concat("{", bos, R"("roles": {"user": {}, "assistant": {}}})");
    const Encoder encoder(tokenizer, read_template(parse_json(chat, "test")), {"assistant"});
    const Encoded e = encoder.encode({{"user", "a"}, {"assistant", "b"}});
    EXPECT_TRUE(std::equal(encoder.begin().begin(), encoder.begin().end(), e.tokens.begin()));
    return MarkedBytes::text_of({e.tokens.begin(), e.tokens.end()});
  };
  EXPECT_EQ(text(""), "<|bos|>ab");
  EXPECT_EQ(text(R"("bos": null, )"), "<|bos|>ab");
  EXPECT_EQ(text(R"("bos": "", )"), "ab");
  EXPECT_EQ(text(R"("bos": "<|eos|>", )"), "<|eos|>ab");
}

TEST(Template, the_tokenizers_own_template_is_named) {
  const TempFolder folder;
  TokenizerFacts facts;
  facts.files = {folder.path("tokenizer.json")};
  const auto said = [&] {
    Host host;
    say_other_template(facts, host.log);
    return host.log.lines.empty() ? std::string() : host.log.lines.front();
  };
  EXPECT_EQ(said(), "");
  std::ofstream(folder.path("tokenizer_config.json")) << R"({"eos_token": "</s>"})";
  EXPECT_EQ(said(), "");
  std::ofstream(folder.path("tokenizer_config.json")) << R"({"chat_template": "{% for m in messages %}"})";
  EXPECT_NE(said().find("tokenizer_config.json, is not used; \"template\": \"tokenizer\" takes it"), std::string::npos);
  std::ofstream(folder.path("chat_template.jinja")) << "x";
  EXPECT_NE(said().find("chat_template.jinja, is not used"), std::string::npos) << said();
}

}  // namespace
}  // namespace drivetrain::test
