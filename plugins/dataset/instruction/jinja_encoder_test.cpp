// Conversations by chat templates in Jinja: what is written, and what of it is learned.
#include "jinja_encoder.h"

#include <gtest/gtest.h>

#include <drivetrain/testkit/kit/host.h>

#include "spoken.h"
#include "test_tokenizer.h"

namespace drivetrain::test {
namespace {

using namespace instruction;

const MarkedBytes kTokens;
constexpr const char* kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
constexpr const char* kMarks =
    "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}!"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %};{% endfor %}";
constexpr const char* kTools =
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{% generation %}{{ m.role[0] }}{{ m.content }}"
    "{% for c in m.tool_calls %}{{ c.function.arguments.x + 1 }}{% endfor %}{% endgeneration %}{% endfor %}";
const std::string kTwo = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
  {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})";

JinjaEncoder encoder(const std::string& text, const std::set<std::string>& learned = {"assistant"},
                     const std::map<std::string, std::string>& tokens = {}) {
  return {kTokens, FolderTemplates{{{"default", text, "t.jinja"}}, tokens}, "", learned, {}};
}

Conversation parsed(const JinjaEncoder& by, const std::string& line) {
  FieldNames names;
  names.template_reads = [&](const std::string& key) { return by.reads(key); };
  return parse_conversation(line, names);
}

// The text, and it with "_" for each token that is not learned.
std::pair<std::string, std::string> encoded(const JinjaEncoder& by, const std::string& line) {
  const Encoded e = by.encode(parsed(by, line));
  std::vector<int64_t> all(e.tokens.begin(), e.tokens.end()), of_those(all);
  for (size_t i = 0; i < all.size(); ++i)
    if (!e.learned[i]) of_those[i] = -100;
  return {MarkedBytes::text_of(all), MarkedBytes::text_of(of_those)};
}

std::string with(std::string line, const std::string& at, const std::string& more) {
  return line.insert(line.find(at) + at.size(), more);
}

void expect_refused(const JinjaEncoder& by, const std::string& line, const std::vector<std::string>& parts) {
  const std::string text = error_of([&] { encoded(by, line); });
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(JinjaEncoder, learns_what_the_template_marks) {
  const auto [text, learned] = encoded(encoder(kMarks), kTwo);
  EXPECT_EQ(text, "u:a;a:b!;u:c;a:d!;");
  EXPECT_EQ(learned, "______b!_______d!_");
}

TEST(JinjaEncoder, learns_what_a_message_adds_where_the_template_has_no_marks) {
  const auto [text, learned] = encoded(encoder(kChatMl), kTwo);
  EXPECT_EQ(text,
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
            "<|im_start|>assistant\nd<|im_end|>\n");
  EXPECT_EQ(learned, std::string(20, '_') + "b<|im_end|>" + std::string(21, '_') + "d<|im_end|>_")
      << "the end of an answer is learned, the line end behind it is not";
  EXPECT_EQ(encoder(kChatMl).ends(), std::vector<int32_t>{257});
  EXPECT_EQ(encoded(encoder(kChatMl, {"user"}), kTwo).second.substr(0, 22), "<|im_start|>user\na<|im");
}

TEST(JinjaEncoder, refuses_a_template_that_writes_the_beginning_otherwise_than_in_the_whole) {
  expect_refused(encoder("{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"), kTwo,
                 {"messages[1]", "t.jinja has no {% generation %} marks", "template_file"});
}

TEST(JinjaEncoder, keys_say_which_answers_are_learned) {
  const std::string one = with(kTwo, R"("content": "b")", R"(, "weight": 0)");
  EXPECT_EQ(encoded(encoder(kMarks), one).second, "_______________d!_");
  EXPECT_EQ(encoded(encoder(kChatMl), one).second.find('b'), std::string::npos);
  expect_refused(encoder(kMarks), with(kTwo, R"("content": "a")", R"(, "train": true)"),
                 {"marks only what an assistant"});
  expect_refused(encoder(std::string(kMarks) + "{% generation %}x{% endgeneration %}"), one, {"3 parts for 2 answers"});
  EXPECT_NE(error_of([] { encoder(kMarks, {"user"}); }).find("roles_to_train is not"), std::string::npos);
}

TEST(JinjaEncoder, gives_tools_and_calls_to_a_template_that_reads_them) {
  const std::string line = R"({"tools": [{"n": 1}], "messages": [{"role": "user", "content": "a", "name": "x"},
    {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\": 4}"}}]}]})";
  EXPECT_EQ(encoded(encoder(kTools), line).first, "[{\"n\": 1}]uaa5")
      << "arguments are an object, not its text, and content that is null is not there";
  EXPECT_EQ(parsed(encoder(kTools), line).unread, std::vector<std::string>{"messages[].name"});
  const std::string plain = R"({"tools": [{"n": 1}], "messages": [{"role": "user", "content": "a"},
    {"role": "assistant", "content": "b", "tool_calls": [1]}]})";
  EXPECT_EQ(parsed(encoder(kChatMl), plain).unread, (std::vector<std::string>{"messages[].tool_calls", "tools"}));
}

TEST(JinjaEncoder, share_gpt_is_known_by_its_keys) {
  EXPECT_EQ(
      encoded(encoder(kMarks), R"({"conversations": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]})")
          .first,
      "u:x;a:y!;");
}

TEST(JinjaEncoder, tells_what_the_template_refuses_and_where) {
  expect_refused(
      encoder("{% for m in messages %}\n{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
              "{% generation %}a{% endgeneration %}{% endfor %}"),
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "assistant", "content": "y"}]})",
      {"t.jinja, line 2: the template refuses the conversation: no system"});
}

TEST(JinjaEncoder, names_marks_and_tokens_that_are_not_there) {
  const JinjaEncoder made = encoder(std::string("{{ bos_token }}<|eot|><tools>{{ eos_token }}") + kMarks, {"assistant"},
                                    {{"eos_token", "</s>"}});
  EXPECT_EQ(made.unknown_marks(), (UnknownMarks{{"<|eot|>", 7}})) << "a tag such as <tools> is meant as text";
  EXPECT_EQ(made.unnamed_tokens(), std::vector<std::string>{"bos_token"});
  Host host;
  say_template(made, "marked", host.log);
  ASSERT_EQ(host.log.warnings.size(), 2u);
  EXPECT_NE(host.log.warnings[0].find("writes bos_token"), std::string::npos) << host.log.warnings[0];
  EXPECT_NE(host.log.lines[0].find("{% generation %}"), std::string::npos) << host.log.lines[0];
}

}  // namespace
}  // namespace drivetrain::test
