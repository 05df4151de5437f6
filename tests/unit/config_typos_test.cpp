// Four hundred typing errors over everything that a config of this build may say: is the first suggestion what was
// meant?
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>

#include "config/known_sections.h"
#include "plugin/kinds.h"
#include "plugin/registry.h"
#include "support/typos.h"

namespace drivetrain {
namespace {

// One thing that people type, and what they read when they mistype it.
struct Typed {
  std::string word;
  std::function<std::string(const std::string&)> message;
  std::function<bool(const std::string&)> same;  // another name of the same thing
};

const Registry& registry() {
  static const Registry all(SearchPath::standard({}, {}, ""));
  return all;
}

std::string selecting(const std::string& key, const Value& value) {
  Value config = Value::object();
  config.set("model", "gpt");
  config.set(key, value);
  Problems problems;
  select_plugins(config, kind_rules(), registry().known(), "cpu", problems);
  return problems.text();
}

class TypingErrors : public testing::Test {
 protected:
  void add(const std::string& word, std::function<std::string(const std::string&)> message,
           std::function<bool(const std::string&)> same = {}) {
    words_.push_back({word, std::move(message), std::move(same)});
  }

  void add_top_level() {
    std::vector<std::string> keys;
    for (const OptionField& field : run_settings_table().fields()) keys.push_back(field.name);
    for (const auto& [name, fact] : known_sections().sections) keys.push_back(name);
    for (const KindRule& rule : kind_rules()) keys.insert(keys.end(), {rule.kind, rule.section});
    for (const KnownPlugin& p : registry().known()) keys.push_back(p.section);
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    std::erase(keys, "");
    for (const std::string& key : keys) add(key, [](const std::string& typo) { return selecting(typo, Value(1)); });
  }

  // Keys and choices of a table; a group's inside its object.
  void add_table(const OptionTable& table, const OptionTable& top, const std::string& owner, const std::string& path,
                 const std::vector<std::string>& groups) {
    const auto parse = [&top, owner, path, groups](const std::string& key, const Value& value) {
      Value section = Value::object();
      Value* at = &section;
      for (const std::string& group : groups) at = &at->set(group, Value::object());
      at->set(key, value);
      Problems problems;
      top.parse(section, owner, path, problems);
      std::string text;
      for (const Problem& p : problems.list())
        if (p.message.find(" is missing") == std::string::npos) text += p.message + "\n";
      return text;
    };
    for (const OptionField& field : table.fields()) {
      const auto same = [&field, &table](const std::string& other) { return table.find(other) == &field; };
      add(
          field.name, [parse](const std::string& typo) { return parse(typo, Value(1)); }, same);
      for (const std::string& alias : field.aliases)
        add(
            alias, [parse](const std::string& typo) { return parse(typo, Value(1)); }, same);
      for (const std::string& choice : field.choices)
        add(choice, [parse, &field](const std::string& typo) {
          const bool list = field.type.starts_with("list");
          return parse(field.name, list ? Value(Value::Array{Value(typo)}) : Value(typo));
        });
      if (!field.group) continue;
      std::vector<std::string> deeper = groups;
      deeper.push_back(field.name);
      add_table(*field.group, top, owner, path, deeper);
    }
  }

  void add_plugins() {
    for (const KnownPlugin& p : registry().known()) {
      if (p.device == "cuda") continue;
      const std::string section = section_of_kind(p.kind);
      std::vector<std::string> names = p.type_names;
      names.push_back(p.name);
      const auto same = [names](const std::string& other) {
        return std::find(names.begin(), names.end(), other) != names.end();
      };
      for (const std::string& name : names)
        add(
            name, [section](const std::string& typo) { return selecting(section, Value(typo)); }, same);
      try {
        const OptionTable& table = registry().options(p.kind, p.name);
        add_table(table, table, p.kind + "/" + p.name, section + ".params", {});
      } catch (const Error&) {  // what this machine cannot load
      }
    }
  }

  void add_section_words() {
    for (const char* section : {"optimizer", "scheduler", "dataset", "attention", "zero_optimization"}) {
      const std::string name = section;
      add("type", [name](const std::string& typo) {
        Value value = Value::object();
        value.set(typo, "x");
        value.set("params", Value::object());
        return selecting(name, value);
      });
      add("params", [name](const std::string& typo) {
        Value value = Value::object();
        value.set("type", "x");
        value.set(typo, Value::object());
        const std::string text = selecting(name, value);
        return text.substr(0, text.find(": no plugin"));
      });
      for (const char* word : {"true", "false"})
        add(word, [name](const std::string& typo) { return selecting(name, Value(typo)); });
    }
  }

  std::vector<Typed> words_;
};

TEST_F(TypingErrors, of_400_at_least_97_in_100_get_the_right_name_first) {
  add_top_level();
  add_table(run_settings_table(), run_settings_table(), "the run", "", {});
  add_plugins();
  add_section_words();
  ASSERT_GT(words_.size(), 200u);
  test::FixedNumbers numbers;
  int tried = 0, right = 0;
  while (tried < 400) {
    const Typed& typed = words_[numbers.below(words_.size())];
    const auto typos = test::typos_of(typed.word);
    const std::string typo = typos[numbers.below(typos.size())];
    const std::string message = typed.message(typo);
    if (message.find('"') == std::string::npos && message.find("known here") == std::string::npos)
      continue;  // it is a name
    ++tried;
    const std::string answer = test::suggested(message);
    const bool good = answer == typed.word || (typed.same && typed.same(answer));
    right += good;
    if (!good) std::printf("%s for %s: \"%s\"\n", typo.c_str(), typed.word.c_str(), answer.c_str());
  }
  std::printf("%d of %d right\n", right, tried);
  EXPECT_GE(right, 388);
}

}  // namespace
}  // namespace drivetrain
