// toolkit/chat: templates write what transformers writes with them, and what they cannot do is one clear message.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/chat/chat_template.h>
#include <drivetrain/toolkit/chat/chat_template_files.h>
#include <drivetrain/toolkit/files/read_file.h>
#include <drivetrain/toolkit/text/json_line.h>

#include <drivetrain/testkit/kit/temp_folder.h>

namespace drivetrain::test {
namespace {

const std::string kData = std::string(DRIVETRAIN_GOLDEN_DIR) + "/chat/";

Value data(const std::string& name) { return parse_json_line(*read_file(kData + name, 1 << 24)); }

// The settings under which expected.json was made.
ChatOptions settings() {
  ChatOptions options;
  options.special_tokens = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", "<pad>"}, {"unk_token", "<unk>"}};
  options.now.emplace();
  options.now->tm_year = 126, options.now->tm_mon = 10, options.now->tm_mday = 28;
  return options;
}

Value null_or(const Value* value) { return value ? *value : Value(); }

// As expected.json has it; of an error its text.
Value rendered(const ChatTemplate& chat, const Value& of) {
  ChatOptions options = settings();
  options.add_generation_prompt = of.find("add_generation_prompt") != nullptr;
  options.variables = null_or(of.find("variables"));
  Value found = Value::object();
  try {
    const RenderedChat made = render_chat(chat, *of.find("messages"), null_or(of.find("tools")), options);
    found.set("text", made.text);
    Value::Array spans;
    for (const auto& [begin, end] : made.assistant)
      spans.push_back(Value::Array{static_cast<int64_t>(begin), static_cast<int64_t>(end)});
    if (!spans.empty()) found.set("assistant", std::move(spans));
  } catch (const Error& e) {
    found.set("error", e.what());
  }
  return found;
}

TEST(ChatTemplates, write_every_conversation_as_transformers_does) {
  const Value conversations = data("conversations.json"), expected = data("expected.json");
  size_t compared = 0;
  for (const Value::Member& family : expected.members()) {
    const NamedTemplate file = read_template_file(kData + family.key + ".jinja");
    const ChatTemplate chat(file.text, file.where);
    ASSERT_EQ(family.value.items().size(), conversations.items().size());
    for (size_t i = 0; i < conversations.items().size(); ++i, ++compared) {
      const Value &wanted = family.value.items()[i], found = rendered(chat, conversations.items()[i]);
      if (const Value* const raised = wanted.find("raises")) {
        const Value* const error = found.find("error");
        ASSERT_NE(error, nullptr) << family.key << " " << i << ": " << found.to_json();
        // What raise_exception says is told; Python's own words are not.
        if (raised->as_string() == "TemplateError") {
          EXPECT_NE(error->as_string().find(wanted.find("says")->as_string()), std::string::npos) << error->as_string();
        }
      } else {
        EXPECT_EQ(found.to_json(), wanted.to_json()) << family.key << " " << i;
      }
    }
  }
  EXPECT_GE(compared, 18u * 20);
}

TEST(ChatTemplates, evaluate_expressions_as_jinja_does) {
  const Value expressions = data("expressions.json");
  for (const Value& pair : expressions.items()) {
    const std::string& text = pair.items()[0].as_string();
    Value of = Value::object();
    of.set("messages", parse_json(R"([{"role": "user", "content": "Hä?"}])", "test"));
    of.set(
        "variables",
        parse_json(R"({"d": {"b": 1, "a": [1, 2.5, null, true], "items": 0}, "l": [3, 1, 2], "s": " aB é "})", "test"));
    Value found;
    try {
      found = rendered(ChatTemplate(text, "test"), of);
    } catch (const Error& e) {
      found.set("error", e.what());
    }
    const Value& wanted = pair.items()[1];
    if (wanted.is_null())
      EXPECT_NE(found.find("error"), nullptr) << text << ": " << found.to_json();
    else
      EXPECT_EQ(null_or(found.find("text")).to_json(), wanted.to_json()) << text << ": " << found.to_json();
  }
}

std::string refusal(const std::string& text) {
  try {
    render_chat(ChatTemplate(text, "a.jinja"), Value::array());
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::config);
    return e.what();
  }
  return "nothing was refused";
}

TEST(ChatTemplates, say_file_line_and_what_is_wrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"\n{% if x %}", "a.jinja, line 2: the chat template does not parse: {% endif %} is missing"},
      {"{{ x", "{{ has no }}"},
      {"{% frob %}", "{% frob %} is no block"},
      {"{% include 'x' %}", "{% include %} is not supported"},
      {"a\nb\n{{ nothing() }}", "a.jinja, line 3: the template calls what is not there: \"nothing\" is not defined"},
      {"{{ 1 | frob }}", "calls what is not there: the filter \"frob\""},
      {"{{ 1 is frob }}", "calls what is not there: the test \"frob\""},
      {"{{ messages.frob() }}", "calls what is not there: \"frob\" is no attribute of a list"},
      {"{{ [].append(1) }}", "the method \"append\" of a list, which changes it"},
      {"{{ x.y }}", "\"x\" is not defined"},
      {"{{ raise_exception('no ' ~ 1) }}", "the template refuses the conversation: no 1"},
      {"{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}", "has not ended after"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "too deeply"},
      {"{% for i in range(99) %}{% set x = 'a' * 999999999 %}{% endfor %}", "longer than"},
      {"{% macro m() %}{% generation %}{% endgeneration %}{% endmacro %}", "{% generation %} stands in a macro"}};
  for (const auto& [text, wanted] : cases) EXPECT_NE(refusal(text).find(wanted), std::string::npos) << refusal(text);
}

TEST(ChatTemplates, any_damage_to_a_template_is_an_error_or_none) {
  const std::string text = read_template_file(kData + "qwen3.jinja").text;
  const Value messages =
      parse_json(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])", "test");
  for (size_t i = 0; i < text.size(); i += 3) {
    std::string damaged = text;
    damaged.erase(i, 1 + i % 5);
    try {
      render_chat(ChatTemplate(damaged, "x"), messages);
      render_chat(ChatTemplate(text.substr(0, i), "x"), messages);
    } catch (const Error&) {
    }
  }
}

class ChatFolders : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_.path(name)).parent_path());
    std::ofstream(folder_.path(name), std::ios::binary) << text;
  }
  FolderTemplates found() const { return read_folder_templates(folder_.path()); }
  TempFolder folder_;
};

TEST_F(ChatFolders, have_templates_in_any_of_the_places_of_transformers) {
  EXPECT_TRUE(found().empty());
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>", "lstrip": false}, "add_bos_token": true, "pad_token": null,
      "chat_template": "one"})");
  EXPECT_EQ(found().choose(true).text, "one");
  EXPECT_EQ(found().special_tokens, (std::map<std::string, std::string>{{"bos_token", "<s>"}}));
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"},
      {"name": "rag", "template": "r"}]})");
  EXPECT_EQ(found().choose(true).text + found().choose(false).text + found().named("rag").text, "tdr");
  write("chat_template.json", R"({"chat_template": "of json"})");
  EXPECT_EQ(found().choose(false).text, "of json");
  write("chat_template.jinja", "of jinja");
  write("additional_chat_templates/tool_use.jinja", "more");
  EXPECT_EQ(found().choose(false).text + ", " + found().choose(true).text, "of jinja, more");
}

TEST_F(ChatFolders, that_are_damaged_are_named) {
  const auto text = [&](const auto& act) {
    try {
      act();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing was refused");
  };
  write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_NE(text([&] { found(); }).find("\"chat_template\" is integer; wanted a text"), std::string::npos);
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "a", "template": "x"}, {"name": "b", "template": "y"}]})");
  EXPECT_NE(text([&] { found().choose(false); }).find("there are \"a\", \"b\""), std::string::npos);
  EXPECT_NE(text([&] { found().named("c"); }).find("no chat template \"c\""), std::string::npos);
  write("tokenizer_config.json", R"({"chat_template": [{"name": "a", "template": "x"}]})");
  EXPECT_NE(text([&] { found().choose(false); }).find("there are \"a\". Name"), std::string::npos)
      << "transformers takes no only one, either";
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "x"}, {"name": "default", "template": "y"}]})");
  EXPECT_EQ(found().choose(false).text, "y");
  write("tokenizer_config.json", "{");
  EXPECT_NE(text([&] { found(); }).find("tokenizer_config.json: column"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
