#include "study/compare.h"

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
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

struct Pair {
  const CellResult *a, *b;
  Comparison comparison;  // of b against a
};

std::vector<Pair> pairs_of(const Analysis& a, const Analysis& b) {
  std::vector<Pair> pairs;
  for (const CellResult& one : a.cells)
    for (const CellResult& other : b.cells)
      if (one.cell->id == other.cell->id && !one.cell->is_noise) pairs.push_back({&one, &other, {}});
  return pairs;
}

// Repeats of two studies did not run side by side: Welch's test decides.
void compare(std::vector<Pair>& pairs) {
  std::vector<Comparison*> list;
  for (Pair& pair : pairs) {
    if (pair.a->ok == 0 || pair.b->ok == 0) continue;
    pair.comparison.n = std::min(pair.a->ok, pair.b->ok);
    pair.comparison.change = pair.b->speed.mean / pair.a->speed.mean - 1;
    pair.comparison.welch = welch_t(pair.b->tgs, pair.a->tgs);
    if (pair.a->ok > 1 && pair.b->ok > 1) pair.comparison.mann_whitney = mann_whitney(pair.b->tgs, pair.a->tgs);
    list.push_back(&pair.comparison);
  }
  correct(list);
  for (Comparison* one : list)
    if (one->welch_holm)
      one->verdict = *one->welch_holm >= 0.05 ? Verdict::no_difference
                     : one->change > 0        ? Verdict::better
                                              : Verdict::worse;
}

const char* words_of(const Pair& pair) {
  if (pair.a->ok == 0 || pair.b->ok == 0) return "not comparable";
  switch (pair.comparison.verdict) {
    case Verdict::better:
      return "faster";
    case Verdict::worse:
      return "slower";
    case Verdict::no_difference:
      return "no difference shown";
    default:
      return "too few repeats to say";
  }
}

Value pair_value(const Pair& pair) {
  Value value = Value::object();
  value.set("cell", pair.a->cell->id), value.set("verdict", words_of(pair));
  value.set("state_a", state_name(pair.a->state)), value.set("state_b", state_name(pair.b->state));
  if (pair.a->ok == 0 || pair.b->ok == 0) return value;
  value.set("tgs_a", pair.a->speed.mean), value.set("tgs_b", pair.b->speed.mean),
      value.set("change", pair.comparison.change);
  const auto p = [](const std::optional<double>& x) { return x ? Value(*x) : Value(); };
  value.set("p_welch", p(pair.comparison.welch)), value.set("p_welch_holm", p(pair.comparison.welch_holm));
  value.set("p_mann_whitney_holm", p(pair.comparison.mann_whitney_holm));
  return value;
}

std::string line_of(const Pair& pair, int width) {
  std::string line = formatted("%-*s  ", width, shown(pair.a->cell->id).c_str());
  if (pair.a->ok == 0 || pair.b->ok == 0) return line + state_text(*pair.a) + "; " + state_text(*pair.b) + "\n";
  line += formatted("%10.4g  %10.4g  ", pair.a->speed.mean, pair.b->speed.mean) + percent(pair.comparison.change) +
          "  " + words_of(pair);
  if (pair.comparison.welch_holm)
    line += formatted(" (Welch, p %.2g after Holm's correction)", *pair.comparison.welch_holm);
  return line + "\n";
}

}  // namespace

std::string compare_text(const CompareRequest& request) {
  const StudyRecord a = records_of(read_ledger(request.a), request.a),
                    b = records_of(read_ledger(request.b), request.b);
  const std::vector<std::string> machines = other_machine(a, b);
  if (!machines.empty() && !request.any_environment)
    throw fail(
        ErrorCode::config, "study compare: the two studies ran in different environments\n     ",
        join(machines, "\n     "),
        "\n   run both on one machine, or say --any-environment: then differences are those of the machines too");
  check_figures(a, b);
  const Analysis first = analysis_of(a), second = analysis_of(b);
  std::vector<Pair> pairs = pairs_of(first, second);
  if (pairs.empty())
    throw fail(ErrorCode::config, "study compare: the studies share no cell\n   cells are compared by their ids: ",
               shown(a.cells.empty() ? "none" : a.cells.front().id), " is one of the first");
  compare(pairs);
  std::vector<std::string> differing = other_builds(a, b);
  differing.insert(differing.begin(), machines.begin(), machines.end());
  if (request.json) {
    Value list = Value::array(), differs = Value::array(), value = Value::object();
    for (const Pair& pair : pairs) list.items().push_back(pair_value(pair));
    for (const std::string& one : differing) differs.items().push_back(one);
    value.set("a", request.a), value.set("b", request.b), value.set("differing", differs),
        value.set("notes", texts(notes_of(a, b))), value.set("cells", list);
    return printable_json(value.to_json(2)) + "\n";
  }
  size_t width = 4;
  for (const Pair& pair : pairs) width = std::max(width, shown(pair.a->cell->id).size());
  const int columns = static_cast<int>(std::min<size_t>(width, 100));
  std::string text;
  for (const std::string& one : differing) text += "differs: " + one + "\n";
  for (const std::string& one : notes_of(a, b)) text += "note: " + one + "\n";
  text += formatted("%-*s  %10s  %10s  B against A\n", columns, "cell", "TGS of A", "TGS of B");
  for (const Pair& pair : pairs) text += line_of(pair, columns);
  return printable(text);
}

}  // namespace drivetrain::study
