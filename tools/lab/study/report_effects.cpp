// Main effects and interactions, in every form of the report.
#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

std::string interval_of(const Effect& effect) {
  return effect.interval ? interval_text(*effect.interval, effect.scale, effect.n) : "";
}

bool any_alias(const std::vector<Effect>& effects) {
  return std::any_of(effects.begin(), effects.end(), [](const Effect& one) { return !one.aliases.empty(); });
}

std::string html_table(const char* title, const std::string& by, const std::vector<Effect>& effects) {
  if (effects.empty()) return "";
  const bool aliases = any_alias(effects), pairs = effects.front().pairs > 0;
  std::string text = std::string("<h2>") + title + "</h2><div class=wide><table><tr><th></th><th class=n>" +
                     escaped(by) +
                     "</th><th class=n>95 % interval</th>"
                     "<th class=n>p, Holm</th>" +
                     (pairs ? "<th class=n>pairs of cells</th>" : "") + "<th class=n>repeats</th>" +
                     (aliases ? "<th>cannot be told from</th>" : "") + "</tr>";
  for (const Effect& e : effects) {
    text += "<tr><td>" + escaped(e.what) + "</td>" + numeric(change_text(e.change, e.scale)) + numeric(interval_of(e));
    text += numeric(e.p_holm ? formatted("%.2g", *e.p_holm) : "") + (pairs ? numeric(concat(e.pairs)) : "");
    text += numeric(concat(e.n)) + (aliases ? "<td>" + escaped(join(e.aliases)) + "</td>" : "") + "</tr>";
  }
  return text + "</table></div>";
}

std::string markdown_table(const char* title, const std::string& by, const std::vector<Effect>& effects) {
  if (effects.empty()) return "";
  const bool aliases = any_alias(effects);
  std::string text = std::string("\n| ") + title + " | " + by + " | 95 % interval | p, Holm | n |" +
                     (aliases ? " cannot be told from |" : "") + "\n| --- | --- | --- | --- | --- |" +
                     (aliases ? " --- |" : "") + "\n";
  for (const Effect& e : effects)
    text += concat("| ", e.what, " | ", change_text(e.change, e.scale), " | ", interval_of(e), " | ",
                   e.p_holm ? formatted("%.2g", *e.p_holm) : "", " | ", e.n, aliases ? " | " + join(e.aliases) : "",
                   " |\n");
  return text;
}

constexpr const char* kAssumed =
    "Effects of a fraction are least-squares estimates, as if no three factors acted together. What an effect cannot "
    "be told from is in its figure too, by the share in brackets.";

}  // namespace

Value texts(const std::vector<std::string>& list) {
  Value values = Value::array();
  for (const std::string& one : list) values.items().push_back(one);
  return values;
}

Value effects_value(const std::vector<Effect>& effects) {
  Value list = Value::array();
  for (const Effect& effect : effects) {
    Value value = Value::object();
    value.set("what", effect.what), value.set("pairs", int64_t{effect.pairs}), value.set("n", int64_t{effect.n});
    value.set("change", effect.change), value.set("low", effect.interval ? Value(effect.interval->low) : Value());
    value.set("high", effect.interval ? Value(effect.interval->high) : Value());
    value.set("p", effect.p ? Value(*effect.p) : Value());
    value.set("p_holm", effect.p_holm ? Value(*effect.p_holm) : Value());
    value.set("cannot_be_told_from", texts(effect.aliases));
    list.items().push_back(std::move(value));
  }
  return list;
}

std::string effects_csv(const Analysis& analysis) {
  std::string text = "kind,effect,n,pairs,change,change_low,change_high,p,p_holm,cannot_be_told_from\n";
  const auto number = [](bool there, double value) { return "," + (there ? formatted("%.9g", value) : ""); };
  const auto add = [&](const char* kind, const std::vector<Effect>& effects) {
    for (const Effect& e : effects) {
      text += concat(kind, ",", csv_field(e.what), ",", e.n, ",", e.pairs > 0 ? concat(e.pairs) : "", ",");
      const Interval interval = e.interval.value_or(Interval{});
      text += formatted("%.9g", e.change) + number(e.interval.has_value(), interval.low);
      text += number(e.interval.has_value(), interval.high) + number(e.p.has_value(), e.p.value_or(0));
      text += number(e.p_holm.has_value(), e.p_holm.value_or(0));
      text += "," + csv_field(join(e.aliases, "; ")) + "\n";
    }
  };
  add("main", analysis.effects), add("interaction", analysis.interactions);
  for (const std::string& refused : analysis.refused_effects) text += "refused," + csv_field(refused) + ",,,,,,,,\n";
  return text;
}

std::string effects_markdown(const StudyRecord& study, const Analysis& analysis) {
  const std::string by = analysis.outcomes.empty() ? "speed" : ranked_by(analysis);
  std::string text =
      markdown_table("main effect", by, analysis.effects) + markdown_table("interaction", by, analysis.interactions);
  if (study.aliasing.empty()) return text;
  text += "\n" + study.aliasing + ". " + kAssumed + "\n";
  for (const std::string& refused : analysis.refused_effects) text += "- Not estimated: " + refused + "\n";
  return text;
}

std::string effects_html(const StudyRecord& study, const Analysis& analysis) {
  const std::string by = analysis.outcomes.empty() ? "speed" : ranked_by(analysis);
  std::string text =
      html_table("Main effects", by, analysis.effects) + html_table("Interactions", by, analysis.interactions);
  if (study.aliasing.empty()) return text;
  text += "<p>" + escaped(kAssumed) + "</p>";
  if (analysis.refused_effects.empty()) return text;
  text += "<h2>Effects that this fraction cannot tell</h2><ul>";
  for (const std::string& refused : analysis.refused_effects) text += "<li>" + escaped(refused) + "</li>";
  return text + "</ul>";
}

}  // namespace drivetrain::study
