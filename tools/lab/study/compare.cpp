#include "study/compare.h"

#include <algorithm>
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/suggest.h"
#include "study/compare_figures.h"
#include "study/measure.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

// What the machine is; releases and builds are what one compares.
std::vector<std::string> other_machine(const StudyRecord& a, const StudyRecord& b) {
  std::vector<std::string> list;
  for (const char* key : {"host", "cpu", "cores", "memory_bytes", "kernel", "gpus"}) {
    const Value *const x = a.environment.find(key), *const y = b.environment.find(key);
    if (x && y && !(*x == *y)) list.push_back(concat(key, ": ", shown(x->to_json()), " and ", shown(y->to_json())));
  }
  return list;
}

std::vector<std::string> other_builds(const StudyRecord& a, const StudyRecord& b) {
  std::vector<std::string> list;
  for (const char* key : {"libtorch", "release", "build"}) {
    const Value *const x = a.environment.find(key), *const y = b.environment.find(key);
    if (x && y && !(*x == *y)) list.push_back(concat(key, ": ", shown(x->to_json()), " and ", shown(y->to_json())));
  }
  return list;
}

// A median and a fastest step, or other steps of a run, are no two values of one thing.
void check_figures(const StudyRecord& a, const StudyRecord& b) {
  if (rule_text(a.warmup) == rule_text(b.warmup)) return;
  throw fail(ErrorCode::config, "study compare: the two studies measure their runs in different ways\n     ",
             shown(a.folder), ": ", rule_text(a.warmup), "\n     ", shown(b.folder), ": ", rule_text(b.warmup),
             "\n   run one of them again with \"warmup\" and \"figure\" of the other");
}

// What is told beside the cells.
std::vector<std::string> notes_of(const StudyRecord& a, const StudyRecord& b) {
  if (a.trim == 0 && b.trim == 0) return {};
  return {
      "\"trim\" is not applied: it sets aside differences of runs side by side, and these are not; all repeats count"};
}

struct Side {
  StudyRecord study;
  Analysis analysis;
};

// Those of the first study, and those that only the second one has.
std::vector<Outcome> outcomes_of_both(const StudyRecord& a, const StudyRecord& b) {
  std::vector<Outcome> all = a.outcomes;
  for (const Outcome& one : b.outcomes)
    if (std::none_of(all.begin(), all.end(), [&](const Outcome& other) { return other.name() == one.name(); }))
      all.push_back(one);
  return all;
}

bool has_figure(const StudyRecord& study, const std::string& metric, std::set<std::string>& others) {
  bool has = false;
  for (const CellRecord& cell : study.cells)
    for (const RunRecord& run : cell.runs) {
      has |= run.figures.contains(metric);
      for (const auto& [name, series] : run.figures) others.insert(name);
      if (!has && run.state == State::ok)
        for (const std::string& name : metric_names(run.folder + "/run")) others.insert(name);
    }
  return has;
}

// An outcome that no run of the two has compares nothing: it is a mistake where somebody asks for it.
void check_there(const StudyRecord& a, const StudyRecord& b, const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    std::set<std::string> names;
    if (has_figure(a, outcome.metric, names) || has_figure(b, outcome.metric, names)) continue;
    const std::vector<std::string> list(names.begin(), names.end());
    throw fail(ErrorCode::config, "study compare: no run of ", shown(a.folder), " or ", shown(b.folder),
               " has the figure ", shown(outcome.metric), suggestion(outcome.metric, list),
               "\n   their runs have: ", list.empty() ? "none, and their folders are gone" : shown(join(list)));
  }
}

// A name, or an outcome as a study's file writes it. A name that nothing has is told before what is better is asked.
std::vector<Outcome> asked_outcomes(const std::string& text, StudyRecord& a, StudyRecord& b) {
  const bool is_json = text.starts_with('{') || text.starts_with('[') || text.starts_with('"');
  std::vector<Outcome> named(1);
  named[0].metric = text;
  for (StudyRecord* const study : {&a, &b}) choose_outcomes(*study, named);
  if (!is_json) check_there(a, b, named);
  const std::vector<Outcome> outcomes = outcomes_of(is_json ? parse_json(text, "--outcome") : Value(text));
  for (StudyRecord* const study : {&a, &b}) choose_outcomes(*study, outcomes);
  check_there(a, b, outcomes);
  return outcomes;
}

const char* words_of(const FigurePair& pair, bool of_speed) {
  if (!pair.why_not.empty()) return "not comparable";
  if (pair.is_constant && pair.by_seed)
    return pair.comparison.mean == 0 ? "the same in every repeat" : "by the same amount in every repeat";
  if (pair.is_constant) return "repeats do not vary, and say nothing of chance";
  if (pair.comparison.verdict == Verdict::untested) return "too few repeats to say";
  return verdict_text(pair.comparison.verdict, of_speed);
}

const char* test_name(bool by_seed) { return by_seed ? "paired by seed" : "Welch"; }

Value pair_value(const FigurePair& pair, bool of_speed) {
  Value value = Value::object();
  value.set("cell", pair.a->cell->id), value.set("verdict", words_of(pair, of_speed));
  value.set("state_a", state_name(pair.a->state)), value.set("state_b", state_name(pair.b->state));
  value.set("why_not", pair.why_not), value.set("note", pair.note);
  value.set("runs_a", int64_t{pair.n_a}), value.set("runs_b", int64_t{pair.n_b});
  if (!pair.why_not.empty()) return value;
  const Comparison& c = pair.comparison;
  const auto number = [](const std::optional<double>& x) { return x ? Value(*x) : Value(); };
  value.set("mean_a", pair.mean_a), value.set("mean_b", pair.mean_b), value.set("change", c.change);
  value.set("low", c.interval ? Value(c.interval->low) : Value());
  value.set("high", c.interval ? Value(c.interval->high) : Value());
  value.set("test", test_name(pair.by_seed)), value.set("p", number(c.paired)),
      value.set("p_holm", number(c.paired_holm));
  return value;
}

Value figure_value(const Figure& figure) {
  Value value = Value::object(), cells = Value::array();
  for (const FigurePair& pair : figure.pairs) cells.items().push_back(pair_value(pair, figure.is_speed));
  value.set("figure", figure.name), value.set("better", figure.higher ? "higher" : "lower");
  value.set("compared_by", figure.scale == Scale::ratio ? "ratio" : "difference"), value.set("cells", std::move(cells));
  return value;
}

std::string line_of(const FigurePair& pair, const Figure& figure, int width) {
  std::string line = formatted("%-*s  ", width, shown(pair.a->cell->id).c_str());
  if (!pair.why_not.empty()) return line + shown(pair.why_not) + "\n";
  const Comparison& c = pair.comparison;
  line += formatted("%10.5g  %10.5g  ", pair.mean_a, pair.mean_b) + change_text(c.change, c.scale) + "  ";
  if (c.interval) line += "(" + interval_text(*c.interval, c.scale, c.n) + ")  ";
  line += words_of(pair, figure.is_speed);
  if (c.paired_holm)
    line += formatted(" (%s, p %.2g after Holm's correction)", test_name(pair.by_seed), *c.paired_holm);
  return line + (pair.note.empty() ? "" : "; " + shown(pair.note)) + "\n";
}

std::string table_of(const Figure& figure) {
  size_t width = 4;
  for (const FigurePair& pair : figure.pairs) width = std::max(width, shown(pair.a->cell->id).size());
  const int columns = static_cast<int>(std::min<size_t>(width, 100));
  std::string text = "\n" + shown(figure.name) +
                     (figure.is_speed ? ", padded tokens per rank and second"
                      : figure.higher ? ", higher is better"
                                      : ", lower is better") +
                     "\n" + formatted("%-*s  %10s  %10s  B against A (95 %% interval)\n", columns, "cell", "A", "B");
  for (const FigurePair& pair : figure.pairs) text += line_of(pair, figure, columns);
  return text;
}

}  // namespace

std::string compare_text(const CompareRequest& request) {
  Side a{records_of(read_ledger(request.a), request.a), {}}, b{records_of(read_ledger(request.b), request.b), {}};
  const std::vector<std::string> machines = other_machine(a.study, b.study);
  if (!machines.empty() && !request.any_environment)
    throw fail(
        ErrorCode::config, "study compare: the two studies ran in different environments\n     ",
        join(machines, "\n     "),
        "\n   run both on one machine, or say --any-environment: then differences are those of the machines too");
  check_figures(a.study, b.study);
  std::vector<Outcome> outcomes =
      request.outcome.empty() ? outcomes_of_both(a.study, b.study) : asked_outcomes(request.outcome, a.study, b.study);
  for (Side* const side : {&a, &b}) choose_outcomes(side->study, outcomes);
  fix_equal_points({&a.study, &b.study}, outcomes);
  for (Side* const side : {&a, &b}) side->study.outcomes = outcomes, side->analysis = analysis_of(side->study);
  const std::vector<Figure> figures = compared_figures(a.analysis, b.analysis);
  if (figures.back().pairs.empty())
    throw fail(ErrorCode::config, "study compare: the studies share no cell\n   cells are compared by their ids: ",
               shown(a.study.cells.empty() ? "none" : a.study.cells.front().id), " is one of the first");
  std::vector<std::string> differing = other_builds(a.study, b.study);
  differing.insert(differing.begin(), machines.begin(), machines.end());
  if (request.json) {
    Value value = Value::object(), list = Value::array();
    for (const Figure& figure : figures) list.items().push_back(figure_value(figure));
    value.set("a", request.a), value.set("b", request.b), value.set("differing", texts(differing)),
        value.set("notes", texts(notes_of(a.study, b.study))), value.set("figures", std::move(list));
    return printable_json(value.to_json(2)) + "\n";
  }
  std::string text;
  for (const std::string& one : differing) text += "differs: " + one + "\n";
  for (const std::string& one : notes_of(a.study, b.study)) text += "note: " + one + "\n";
  for (const Figure& figure : figures) text += table_of(figure);
  return printable(text);
}

}  // namespace drivetrain::study
