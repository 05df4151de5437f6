#include "checkpoint_tools/list.h"

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "checkpoint_tools/tool_text.h"
#include "report/text_table.h"

namespace drivetrain {
namespace {

// Figures that have a column, where some checkpoint has them. The others are in the JSON.
constexpr const char* kFigures[] = {"loss", "valid_loss", "grad_norm", "lr", "tokens"};

struct ListedTag {
  StoredTag tag;
  bool described = false;  // its manifest is whole, so that the members of `tag` say something
  Value facts = Value::object();
  std::vector<std::string> problems;
};

ListedTag look_at(const StoredRun& run, const StoredTag& tag) {
  ListedTag listed{tag, true, Value::object(), run.damage(tag.tag)};
  try {
    listed.facts = run.open(tag)->facts();
  } catch (const Error& e) {
    if (listed.problems.empty()) listed.problems.push_back(first_line(e.what()));
  }
  return listed;
}

std::vector<ListedTag> look(const StoredRun& run) {
  std::vector<ListedTag> list;
  for (const StoredTag& tag : run.tags()) list.push_back(look_at(run, tag));
  for (const std::string& name : run.damaged_tags()) {
    ListedTag& listed = list.emplace_back();
    listed.tag.tag = name, listed.problems = run.damage(name);
  }
  return list;
}

bool has_figure(const std::vector<ListedTag>& list, const char* name) {
  for (const ListedTag& one : list)
    if (const Value* const figure = one.tag.figures.find(name); figure && figure->is_number()) return true;
  return false;
}

TextRow row_of(const ListedTag& one, const std::vector<std::string>& figures) {
  const auto if_known = [&](const std::string& text) { return one.described ? text : "-"; };
  TextRow row{one.tag.tag, if_known(concat(one.tag.step)), if_known(utc_text(one.tag.saved_at)),
              if_known(megabytes(one.tag.bytes)), if_known(ranks_text(one.facts))};
  for (const std::string& name : figures) {
    const Value* const figure = one.tag.figures.find(name);
    row.push_back(figure && figure->is_number() ? short_number(figure->as_double()) : "-");
  }
  row.push_back(one.problems.empty() ? "complete" : "damaged");
  return row;
}

Value value_of(const ListedTag& one) {
  Value value = Value::object();
  value.set("tag", one.tag.tag), value.set("complete", one.problems.empty());
  value.set("problems", strings_value(one.problems));
  if (!one.described) return value;
  value.set("step", one.tag.step), value.set("saved_at", one.tag.saved_at);
  value.set("time", utc_json_text(one.tag.saved_at));
  value.set("bytes", count_value(one.tag.bytes)), value.set("files", count_value(one.tag.files));
  for (const char* const key : {"world_size", "mesh"})
    if (const Value* const found = fact(one.facts, {"run", key})) value.set(key, *found);
  value.set("figures", one.tag.figures);
  return value;
}

}  // namespace

std::string left_overs_text(const StoredRun& run) {
  std::string text;
  for (const StoreProblem& problem : run.problems())
    if (problem.left_over) text += "  " + problem.text + "\n";
  return text.empty() ? "" : "not complete; the next run in this folder removes what is left of killed saves\n" + text;
}

Value left_overs_value(const StoredRun& run) {
  Value list = Value::array();
  for (const StoreProblem& problem : run.problems()) {
    if (!problem.left_over) continue;
    Value one = Value::object();
    one.set("tag", problem.tag), one.set("problem", problem.text);
    list.items().push_back(one);
  }
  return list;
}

std::string list_text(const StoredRun& run) {
  const std::vector<ListedTag> list = look(run);
  std::vector<std::string> figures;
  for (const char* const name : kFigures)
    if (has_figure(list, name)) figures.emplace_back(name);
  std::vector<TextRow> rows{{"tag", "step", "time (UTC)", "size", "ranks"}};
  rows[0].insert(rows[0].end(), figures.begin(), figures.end());
  rows[0].emplace_back("state");
  std::string damage;
  for (const ListedTag& one : list) {
    rows.push_back(row_of(one, figures));
    for (const std::string& problem : one.problems) damage += concat("  ", one.tag.tag, ": ", problem, "\n");
  }
  std::string text = list.empty() ? "no checkpoint is complete\n" : aligned(rows, "", {1, 3});
  if (!damage.empty())
    text += "damaged; `drivetrain checkpoint verify " + one_line(run.folder()) + "` checks every byte\n" + damage;
  return text + left_overs_text(run);
}

Value list_value(const StoredRun& run) {
  Value value = Value::object(), list = Value::array();
  value.set("folder", run.folder()), value.set("store", run.store().id);
  for (const ListedTag& one : look(run)) list.items().push_back(value_of(one));
  value.set("checkpoints", list), value.set("left_overs", left_overs_value(run));
  return value;
}

}  // namespace drivetrain
