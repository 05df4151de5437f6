// No key of DeepSpeed's is unknown, and `config explain` has something to say of each.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include <drivetrain/error.h>

#include "config_tools/deepspeed_keys.h"
#include "deepspeed/check_layers.h"
#include "report/facts.h"
#include "train/checked_config.h"

namespace drivetrain::test {
namespace {

// {"a": {"b": null}} of "a.b", beside what the section needs to be read at all.
Value with_key(const std::string& path) {
  const size_t dot = path.find('.');
  Value object = Value::object();
  if (dot == std::string::npos)
    object.set(path, Value());
  else
    object.set(path.substr(0, dot), with_key(path.substr(dot + 1)));
  return object;
}

// The types whose options have this key, by what DeepSpeed's own table says of it.
std::vector<std::string> types_of(const std::string& path) {
  if (path.starts_with("optimizer.") && path != "optimizer.type") return {"Adam"};
  if (path.starts_with("scheduler.params.")) return {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
  return {""};
}

TEST(DeepSpeedKeys, none_is_unknown) {
  const TempFolder folder;
  std::vector<std::string> files, paths;
  for (const auto& [path, meaning] : deepspeed_keys()) {
    for (const std::string& type : types_of(path)) {
      Value file = with_key(path);
      if (!type.empty()) const_cast<Value*>(file.find(path.substr(0, path.find('.'))))->set("type", type);
      if (path.starts_with("zero_optimization.") && path != "zero_optimization.stage")
        const_cast<Value*>(file.find("zero_optimization"))->set("stage", 3);
      files.push_back(folder / concat("key", files.size(), ".json"));
      paths.push_back(path);
      std::ofstream(files.back()) << file.to_json();
    }
  }
  const Value reports = check_files(folder, files);
  ASSERT_EQ(reports.items().size(), files.size());
  std::set<std::string> known, all(paths.begin(), paths.end());
  for (size_t i = 0; i < files.size(); ++i) {
    bool unknown = false;
    for (const Value& problem : reports.items()[i].find("problems")->items()) {
      const std::string& text = problem.find("message")->as_string();
      unknown = unknown || text.find("is not a setting") != std::string::npos ||
                text.find("is not an option of") != std::string::npos ||
                text.find("is not a key of") != std::string::npos;
    }
    if (!unknown) known.insert(paths[i]);
  }
  std::vector<std::string> missing;
  std::set_difference(all.begin(), all.end(), known.begin(), known.end(), std::back_inserter(missing));
  EXPECT_EQ(missing, std::vector<std::string>());
}

// A config in which `path` has `value`, in a section that is switched on.
Value with_value(const std::string& path, const Value& value) {
  Value file = with_key(path);
  const size_t dot = path.find('.');
  const std::string top = path.substr(0, dot);
  Value* at = &file;
  for (size_t begin = 0, end; (end = path.find('.', begin)) != std::string::npos; begin = end + 1)
    at = const_cast<Value*>(at->find(path.substr(begin, end - begin)));
  at->set(path.substr(path.rfind('.') + 1), value);
  if (dot == std::string::npos) return file;
  Value& section = *const_cast<Value*>(file.find(top));
  const auto beside = [&](const char* key, const Value& other) {
    if (!section.find(key)) section.set(key, other);
  };
  if (top == "zero_optimization") beside("stage", 3);
  if (top == "optimizer") beside("type", "Adam");
  if (top == "scheduler") beside("type", "WarmupLR");
  if (top != "zero_optimization" && top != "optimizer" && top != "scheduler" && top != "data_types" &&
      top != "pipeline" && top != "tensor_parallel" && top != "activation_checkpointing")
    beside("enabled", true);
  return file;
}

// What is said of a file, and what it asks for; what is refused is seen, too.
std::string seen_of(const TempFolder& folder, const Value& file) {
  std::string settings = file.to_json();
  settings = settings.substr(1, settings.size() - 2);
  if (!file.find("train_batch_size") && !file.find("train_micro_batch_size_per_gpu"))
    settings += concat(settings.empty() ? "" : ", ", R"("train_batch_size": 8)");
  const std::string path = folder / "file.json";
  std::ofstream(path) << "{" << kRun << (settings.empty() ? "" : ", ") << settings << "}";
  const CheckedConfig checked = check_config({path, {}, {}, {DRIVETRAIN_BUILD_DIR "/lib/drivetrain/plugins"}, 0});
  if (!checked.run) return "refused: " + checked.refusal;
  std::string text = resolved_value(*checked.run, *checked.registry).to_json();
  for (const std::string& note : notes_of(checked)) text += "\n" + note;
  return text;
}

// The table of all keys, by the reader itself: one key is changed at a time, and a change that nobody is told of and
// that changes nothing of the run would be a fact lost. Some value at least has to be seen; those that say what is so
// anyway, and options of what is off, need not be.
TEST(DeepSpeedKeys, no_change_of_a_key_passes_in_silence) {
  const TempFolder folder;
  const std::vector<Value> values = {Value(true), Value(2),     Value(0.5),
                                     Value("x"),  Value(false), Value(Value::Array{Value(1)})};
  std::vector<std::string> silent;
  std::map<std::string, std::string> bases;  // what is seen of a file without the key, by its text
  ASSERT_TRUE(seen_of(folder, Value::object()).starts_with("{")) << seen_of(folder, Value::object());
  for (const auto& [path, meaning] : deepspeed_keys()) {
    Value without = with_value(path, Value());
    Value* at = &without;
    for (size_t begin = 0, end; (end = path.find('.', begin)) != std::string::npos; begin = end + 1)
      at = const_cast<Value*>(at->find(path.substr(begin, end - begin)));
    at->erase(path.substr(path.rfind('.') + 1));
    std::string& base = bases[without.to_json()];
    if (base.empty()) base = seen_of(folder, without);
    const auto seen = [&](const Value& value) {
      const std::string text = seen_of(folder, with_value(path, value));
      // Or its section is named or refused, with all that it holds.
      bool named = text != base || base.starts_with("refused");
      for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1))
        named = named || text.find(path.substr(0, dot) + " has no effect here") != std::string::npos;
      return named;
    };
    if (std::none_of(values.begin(), values.end(), seen)) silent.push_back(path);
  }
  EXPECT_EQ(silent, std::vector<std::string>());
}

}  // namespace
}  // namespace drivetrain::test
