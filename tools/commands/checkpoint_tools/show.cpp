#include "checkpoint_tools/show.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>

#include <drivetrain/toolkit/dtype_name.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/suggest.h"
#include "checkpoint_tools/elements.h"
#include "checkpoint_tools/tool_text.h"
#include "report/text_table.h"

namespace drivetrain {
namespace {

struct OwnerSum {
  size_t tensors = 0;
  uint64_t bytes = 0;
};

std::map<std::string, OwnerSum> sums_by_owner(const std::vector<StoredTensor>& tensors) {
  std::map<std::string, OwnerSum> sums;
  for (const StoredTensor& tensor : tensors) {
    OwnerSum& sum = sums[owner_of(tensor.name)];
    ++sum.tensors, sum.bytes += bytes_of(tensor);
  }
  return sums;
}

// "optimizer.params.lr" and the value as JSON. Lists are one value.
void add_leaves(const Value& value, const std::string& path, std::vector<TextRow>& rows) {
  if (!value.is_object() || value.members().empty()) return rows.push_back({path, value.to_json()});
  for (const Value::Member& member : value.members())
    add_leaves(member.value, path.empty() ? member.key : path + "." + member.key, rows);
}

std::string facts_text(const Value& facts, const std::string& heading, const std::vector<std::string>& path) {
  const Value* const found = fact(facts, path);
  if (!found || !found->is_object() || found->members().empty()) return "";
  std::vector<TextRow> rows;
  add_leaves(*found, "", rows);
  return heading + "\n" + aligned(rows, "  ");
}

std::string plugins_text(const Value& facts) {
  const Value* const plugins = fact(facts, {"run", "plugins"});
  if (!plugins || !plugins->is_object()) return "";
  std::vector<TextRow> rows;
  for (const Value::Member& plugin : plugins->members()) {
    const Value* const version = plugin.value.find("version");
    rows.push_back({plugin.key, version && version->is_string() ? version->as_string() : "?"});
  }
  return "plugins\n" + aligned(rows, "  ");
}

std::string head_text(const StoredRun& run, const StoredTag& tag, const Value& facts) {
  std::vector<TextRow> rows{{"step", concat(tag.step)},
                            {"saved", utc_text(tag.saved_at) + " UTC"},
                            {"size", concat(tag.bytes, " bytes in ", counted(tag.files, "file"))},
                            {"store", run.store().id}};
  if (const std::string ranks = ranks_text(facts); !ranks.empty()) rows.push_back({"ranks", ranks});
  for (const char* const key : {"parameters", "libtorch", "host"})
    if (const Value* const value = fact(facts, {"run", key}))
      rows.push_back({key, value->is_string() ? value->as_string() : value->to_json()});
  return tag.tag + " of " + one_line(run.folder()) + "\n" + aligned(rows, "  ");
}

std::string tensors_text(const std::vector<StoredTensor>& tensors) {
  std::vector<TextRow> rows{{"tensor", "shape", "dtype", "bytes"}};
  for (const StoredTensor& tensor : tensors)
    rows.push_back({tensor.name, shape_text(tensor.shape), dtype_name(tensor.dtype), concat(bytes_of(tensor))});
  std::vector<TextRow> sums{{"owner", "tensors", "bytes"}};
  OwnerSum all;
  for (const auto& [owner, sum] : sums_by_owner(tensors)) {
    sums.push_back({owner + "/", concat(sum.tensors), concat(sum.bytes)});
    all.tensors += sum.tensors, all.bytes += sum.bytes;
  }
  sums.push_back({"together", concat(all.tensors), concat(all.bytes)});
  return aligned(rows, "", {3}) + aligned(sums, "", {1, 2});
}

Value head_value(const StoredRun& run, const StoredTag& tag) {
  Value value = Value::object();
  value.set("folder", run.folder()), value.set("store", run.store().id);
  value.set("tag", tag.tag), value.set("step", tag.step);
  value.set("saved_at", tag.saved_at), value.set("time", utc_json_text(tag.saved_at));
  value.set("bytes", count_value(tag.bytes)), value.set("files", count_value(tag.files));
  return value;
}

Value tensor_value(const StoredTensor& tensor) {
  Value value = Value::object();
  value.set("name", tensor.name);
  value.set("shape", Value(Value::Array(tensor.shape.begin(), tensor.shape.end())));
  value.set("dtype", dtype_name(tensor.dtype)), value.set("bytes", count_value(bytes_of(tensor)));
  return value;
}

}  // namespace

std::string show_text(const StoredRun& run, const StoredTag& tag) {
  const auto checkpoint = run.open(tag);
  const Value& facts = checkpoint->facts();
  return head_text(run, tag, facts) + facts_text(facts, "figures of the step", {"figures"}) +
         facts_text(facts, "counters", {"counters"}) + facts_text(facts, "averaged", {"averaged"}) +
         plugins_text(facts) + facts_text(facts, "config", {"config"}) + tensors_text(checkpoint->tensors());
}

Value show_value(const StoredRun& run, const StoredTag& tag) {
  const auto checkpoint = run.open(tag);
  const std::vector<StoredTensor> tensors = checkpoint->tensors();
  Value value = head_value(run, tag), list = Value::array(), owners = Value::array();
  value.set("facts", checkpoint->facts());
  for (const StoredTensor& tensor : tensors) list.items().push_back(tensor_value(tensor));
  for (const auto& [owner, sum] : sums_by_owner(tensors)) {
    Value one = Value::object();
    one.set("owner", owner), one.set("tensors", count_value(sum.tensors)), one.set("bytes", count_value(sum.bytes));
    owners.items().push_back(one);
  }
  value.set("tensors", list), value.set("owners", owners);
  return value;
}

std::vector<StoredTensor> tensors_named(const Checkpoint& checkpoint, const std::string& pattern,
                                        const std::string& where) {
  std::vector<StoredTensor> fitting;
  std::vector<std::string> names;
  for (StoredTensor& tensor : checkpoint.tensors()) {
    if (tensor.name == pattern) return {tensor};
    names.push_back(tensor.name);
    if (::fnmatch(pattern.c_str(), tensor.name.c_str(), FNM_NOESCAPE) == 0) fitting.push_back(std::move(tensor));
  }
  if (fitting.empty())
    throw fail(ErrorCode::config, where, ": holds no tensor ", shown(pattern), did_you_mean(pattern, names),
               "\n   its ", counted(names.size(), "name"), ": drivetrain checkpoint show; several at once: '*norm*'");
  return fitting;
}

std::string show_tensors_text(const StoredRun& run, const StoredTag& tag, const std::string& pattern) {
  const auto checkpoint = run.open(tag);
  std::vector<TextRow> rows{{"tensor", "shape", "dtype", "min", "max", "mean", "l2", "not finite", "first"}};
  for (const StoredTensor& tensor : tensors_named(*checkpoint, pattern, tag.tag)) {
    const ElementStatistics s = statistics_of(*checkpoint, tensor);
    std::vector<std::string> first;
    for (const double x : s.first) first.push_back(short_number(x));
    rows.push_back({tensor.name, shape_text(tensor.shape), dtype_name(tensor.dtype), short_number(s.min),
                    short_number(s.max), short_number(s.mean), short_number(s.l2), concat(s.non_finite), join(first)});
  }
  return aligned(rows, "", {3, 4, 5, 6, 7});
}

Value show_tensors_value(const StoredRun& run, const StoredTag& tag, const std::string& pattern) {
  const auto checkpoint = run.open(tag);
  Value value = head_value(run, tag), list = Value::array();
  for (const StoredTensor& tensor : tensors_named(*checkpoint, pattern, tag.tag)) {
    const ElementStatistics s = statistics_of(*checkpoint, tensor);
    Value one = tensor_value(tensor), first = Value::array();
    for (const double x : s.first) first.items().push_back(number_value(x));
    one.set("min", s.min), one.set("max", s.max), one.set("mean", number_value(s.mean));
    one.set("l2", number_value(s.l2)), one.set("not_finite", s.non_finite), one.set("first", first);
    list.items().push_back(one);
  }
  value.set("tensors", list);
  return value;
}

}  // namespace drivetrain
