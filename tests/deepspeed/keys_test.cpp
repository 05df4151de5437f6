// No key of DeepSpeed's is unknown, and `config explain` has something to say of each.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

#include <drivetrain/error.h>

#include "config/deepspeed_keys.h"
#include "deepspeed/check_layers.h"

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

}  // namespace
}  // namespace drivetrain::test
