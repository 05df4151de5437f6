#include "data_path.h"

#include <drivetrain/error.h>

#include <algorithm>
#include <cmath>

namespace drivetrain::megatron {
namespace {

template <class... Parts>
Error wrong_path(const Parts&... parts) {
  return fail(ErrorCode::config, "dataset/megatron: data_path ", parts...,
              "\n   it is a prefix, a list of prefixes, or a blend: [[0.3, \"a\"], [0.7, \"b\"]]");
}

struct Reader {
  DataPath path;

  void member(const Value& weight, const Value& prefix, const std::string& where) {
    if (!weight.is_number() || !prefix.is_string())
      throw wrong_path(where, " is ", weight.to_json(), ", ", prefix.to_json(), ", not a weight and a prefix");
    const double w = weight.as_double();
    if (!(w >= 0) || std::isinf(w))
      throw wrong_path(where, ": the weight of ", prefix.as_string(), " is ", weight.to_json());
    path.prefixes.push_back(prefix.as_string());
    path.weights.push_back(w);
  }
  void list(const Value::Array& items) {
    const auto all = [&](bool (Value::*is)() const) {
      return std::all_of(items.begin(), items.end(), [&](const Value& item) { return (item.*is)(); });
    };
    if (all(&Value::is_string)) {
      for (const Value& item : items) path.prefixes.push_back(item.as_string());
    } else if (all(&Value::is_array)) {
      for (size_t i = 0; i < items.size(); ++i) {
        const Value::Array& pair = items[i].items();
        if (pair.size() != 2) throw wrong_path("[", i, "] is ", items[i].to_json(), ", not a weight and a prefix");
        member(pair[0], pair[1], concat("[", i, "]"));
      }
    } else {
      if (items.size() % 2 != 0) throw wrong_path("has ", items.size(), " elements, not weights and prefixes in turn");
      for (size_t i = 0; i < items.size(); i += 2) member(items[i], items[i + 1], concat("[", i, "], [", i + 1, "]"));
    }
  }
  void leave_out_zeros() {
    if (path.weights.empty()) return;
    double sum = 0;
    for (const double w : path.weights) sum += w;
    if (!(sum > 0) || std::isinf(sum)) throw wrong_path("has weights without a sum above 0");
    DataPath kept;
    for (size_t i = 0; i < path.weights.size(); ++i)
      if (path.weights[i] > 0) kept.prefixes.push_back(path.prefixes[i]), kept.weights.push_back(path.weights[i]);
    path = kept;
  }
};

}  // namespace

DataPath parse_data_path(const Value& value) {
  Reader reader;
  if (value.is_string())
    reader.path.prefixes.push_back(value.as_string());
  else if (value.is_array())
    reader.list(value.items());
  else
    throw wrong_path("is ", value.to_json());
  if (reader.path.prefixes.empty()) throw wrong_path("is empty");
  reader.leave_out_zeros();
  return reader.path;
}

}  // namespace drivetrain::megatron
