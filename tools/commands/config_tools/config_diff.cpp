// `drivetrain config diff A B`: what two configs ask for, compared key by key with every default filled in. Order,
// comments, spellings and layers of the files do not count.
#include <iostream>
#include <map>

#include "base/printable.h"
#include "base/value_error.h"
#include "config_tools/config_commands.h"
#include "report/facts.h"
#include "train/checked_config.h"

namespace drivetrain {
namespace {

// Every value that is no object, by its path. Notes are left out, and where the run is kept.
void flatten(const Value& value, const std::string& path, std::map<std::string, Value>& leaves) {
  if (path == "output_dir") return;
  if (!value.is_object() || value.members().empty()) {
    leaves[path] = value;
    return;
  }
  for (const Value::Member& m : value.members())
    if (!m.key.starts_with('_')) flatten(m.value, path.empty() ? m.key : path + "." + m.key, leaves);
}

std::map<std::string, Value> leaves_of(const CheckedConfig& checked) {
  checked.throw_if_refused();
  std::map<std::string, Value> leaves;
  flatten(resolved_value(*checked.run, *checked.registry), "", leaves);
  return leaves;
}

struct ConfigDifference {
  std::string key, a, b;
};

std::string leaf_text(const std::map<std::string, Value>& leaves, const std::string& key) {
  const auto found = leaves.find(key);
  return found == leaves.end() ? "absent" : found->second.to_json();
}

std::vector<ConfigDifference> config_differences(const std::map<std::string, Value>& a,
                                                 const std::map<std::string, Value>& b) {
  std::map<std::string, Value> both = a;
  both.insert(b.begin(), b.end());
  std::vector<ConfigDifference> list;
  for (const auto& [key, value] : both) {
    const auto in_a = a.find(key), in_b = b.find(key);
    if (in_a != a.end() && in_b != b.end() && in_a->second == in_b->second) continue;
    list.push_back({key, leaf_text(a, key), leaf_text(b, key)});
  }
  return list;
}

Value differences_value(const std::vector<ConfigDifference>& list) {
  Value all = Value::array();
  for (const ConfigDifference& d : list) {
    Value one = Value::object();
    one.set("key", d.key), one.set("a", d.a), one.set("b", d.b);
    all.items().push_back(std::move(one));
  }
  return all;
}

}  // namespace

int diff_command(const cli::Arguments& arguments) {
  const std::string &a = arguments.plain()[0], &b = arguments.plain()[1];
  const auto list = config_differences(leaves_of(check_config(config_request(a, arguments))),
                                       leaves_of(check_config(config_request(b, arguments))));
  if (arguments.has("--json")) {
    std::cout << printable_json(differences_value(list).to_json(2)) << "\n";
  } else if (list.empty()) {
    std::cout << printable(concat(a, " and ", b, " ask for the same\n"));
  } else {
    size_t width = 0;
    for (const ConfigDifference& d : list) width = std::max(width, d.key.size());
    for (const ConfigDifference& d : list)
      std::cout << printable(concat(d.key, std::string(width - d.key.size() + 2, ' '), d.a, " -> ", d.b)) << "\n";
  }
  return list.empty() ? 0 : 1;
}

}  // namespace drivetrain
