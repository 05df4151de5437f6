#include "encoder.h"

#include <gtest/gtest.h>

#include <drivetrain/testkit/kit/host.h>

#include "test_tokenizer.h"

namespace drivetrain::test {
namespace {

using namespace instruction;

const MarkedBytes kTokenizer;

Value json(const std::string& text) { return parse_json(text, "test.json"); }

std::vector<Message> conversation(const std::string& line, const FieldNames& names = {}) {
  return parse_conversation(line, names).messages;
}

// The text, and it with "_" for every token that is not learned.
std::pair<std::string, std::string> encoded(const std::string& line, const std::string& chat = "null",
                                            const std::set<std::string>& learned = {"assistant"}) {
  const Encoded e = Encoder(kTokenizer, read_template(json(chat)), learned).encode(conversation(line));
  std::vector<int64_t> all(e.tokens.begin(), e.tokens.end()), of_those(all);
  for (size_t i = 0; i < all.size(); ++i)
    if (!e.learned[i]) of_those[i] = -100;
  return {MarkedBytes::text_of(all), MarkedBytes::text_of(of_those)};
}

constexpr const char* kShort = R"({"bos": "<|bos|>", "eos": "<|eos|>", "separator": ";", "roles": {
  "system": {"prefix": "S:"}, "user": {"prefix": "U:", "suffix": "."}, "assistant": {"prefix": "A:", "suffix": "!"}}})";
constexpr const char* kTwoTurns = R"({"messages": [{"role": "user", "content": "one"},
  {"role": "assistant", "content": "two"}, {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"}]})";

TEST(Encoder, chat_ml_is_the_default_template_and_responses_are_learned_to_their_end) {
  const auto [text, learned] = encoded(R"({"messages": [{"role": "user", "content": "hi"},
    {"role": "assistant", "content": "yo"}]})");
  EXPECT_EQ(text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>");
  EXPECT_EQ(learned, std::string(21, '_') + "yo<|im_end|>");
}

TEST(Encoder, a_template_is_data) {
  const auto [text, learned] = encoded(kTwoTurns, kShort);
  EXPECT_EQ(text, "<|bos|>U:one.;A:two!;U:3.;A:4!<|eos|>");
  EXPECT_EQ(learned, "__________two!________4!<|eos|>");
}

TEST(Encoder, a_conversation_without_a_system_message_gets_that_of_the_template) {
  std::string chat = kShort;
  chat.insert(1, R"("system": "be nice", )");
  const char* const turns = R"({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]})";
  EXPECT_EQ(encoded(concat(R"({"messages": [)", turns), chat).first, "<|bos|>S:be nice;U:x.;A:y!<|eos|>");
  EXPECT_EQ(encoded(concat(R"({"messages": [{"role": "system", "content": "no"}, )", turns), chat).first,
            "<|bos|>S:no;U:x.;A:y!<|eos|>");
}

TEST(Encoder, any_roles_may_be_learned) {
  EXPECT_EQ(encoded(kTwoTurns, kShort, {"user"}).second, "___one.__________3.______");
}

TEST(Encoder, prompts_and_responses_are_messages_of_user_and_assistant) {
  EXPECT_EQ(encoded(R"({"prompt": "x", "response": "y", "more": 1})", kShort).first, "<|bos|>U:x.;A:y!<|eos|>");
  FieldNames names;
  names.prompt = "instruction", names.response = "output";
  EXPECT_EQ(conversation(R"({"instruction": "x", "output": "y"})", names).at(1).content, "y");
  names.messages = "conversations", names.role = "from", names.content = "value";
  names.roles = {{"human", "user"}, {"gpt", "assistant"}};
  const auto found =
      conversation(R"({"conversations": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]})", names);
  EXPECT_EQ(found.at(0).role + found.at(1).role, "userassistant");
}

TEST(Encoder, escapes_and_other_characters_arrive_as_utf_8) {
  EXPECT_EQ(conversation(R"({"prompt": "\u00e9\ud83d\ude00\n", "response": "y"})").at(0).content, "é😀\n");
}

void expect_error(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "found: " << text << "\nwanted: " << part;
}

TEST(Encoder, a_line_that_is_no_conversation_is_an_error_that_says_what_is_there) {
  const auto of = [](const std::string& line) { return error_of([&] { encoded(line, kShort); }); };
  expect_error(of(R"({"text": "x"})"), {"\"messages\"", "\"prompt\"", "it has \"text\"", "field names"});
  expect_error(of(R"({"prompt": "x"})"), {"no field \"response\"", "it has \"prompt\""});
  expect_error(of(R"({"prompt": "x", "response": 5})"), {"\"response\" of the line is integer"});
  expect_error(of(R"({"messages": []})"), {"\"messages\" is an empty list"});
  expect_error(of(R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant"}]})"),
               {"messages[1] has no field \"content\""});
  expect_error(of(R"({"messages": [{"role": "user", "content": ["x"]}]})"), {"\"content\" of messages[0] is array"});
  expect_error(of(R"({"messages": [{"role": "tool", "content": "x"}]})"),
               {"role \"tool\"", "assistant, system, user", "role_names"});
  expect_error(of(R"({"messages": [{"role": "user", "content": "x"}]})"), {"nothing", "roles_to_train"});
  expect_error(of("[1]"), {"the line is array"});
}

TEST(Encoder, broken_json_is_an_error_of_the_data_with_its_column) {
  try {
    conversation(R"({"prompt": "x", "response": })");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    expect_error(e.what(), {"column 29", "not valid JSON"});
  }
  expect_error(error_of([] { conversation(R"({"prompt": "x", "response": "z", "prompt": "y"})"); }),
               {"\"prompt\" is given twice in the line"});
}

TEST(Encoder, what_is_no_template_is_refused) {
  const auto of = [](const std::string& chat) { return error_of([&] { read_template(json(chat)); }); };
  expect_error(of(R"("{% for m in messages %}")"), {"template is string", "\"tokenizer\"", "template_file"});
  expect_error(of(R"({"role": {}})"), {"\"role\"", "known are bos, eos, separator, system and roles"});
  expect_error(of(R"({"roles": {"user": {"before": "x"}}})"), {"\"before\"", "prefix and suffix"});
  expect_error(of(R"({"roles": {"user": {"prefix": 1}}})"), {"roles.user.prefix is integer"});
  expect_error(of(R"({"bos": "x"})"), {"no roles"});
  expect_error(of(R"({"system": "x", "roles": {"user": {}}})"), {"no role \"system\""});
  expect_error(error_of([] { Encoder(kTokenizer, read_template({}), {"bot"}); }),
               {"\"bot\"", "assistant, system, user"});
}

}  // namespace
}  // namespace drivetrain::test
