#include "study/study_file.h"

#include <algorithm>
#include <filesystem>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "base/suggest.h"
#include "study/study_levels.h"
#include "study/study_rules.h"

namespace drivetrain::study {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kKeys = {"name",
                                        "base",
                                        "set",
                                        "factors",
                                        "rows",
                                        "cross",
                                        "fraction",
                                        "constraints",
                                        "reference",
                                        "repeats",
                                        "warmup",
                                        "seed",
                                        "budget_s",
                                        "keep",
                                        "timeout_s",
                                        "world_size",
                                        "environment",
                                        "hosts",
                                        "gate",
                                        "output_dir",
                                        "about",
                                        "peak_tflops",
                                        "memory_limit_bytes",
                                        "noise_cell",
                                        "figure",
                                        "trim",
                                        "hardware",
                                        "outcome",
                                        "seed_per_repeat",
                                        "allow_load",
                                        "dispatch",
                                        "early_stop"};

int64_t whole(const Value& study, const char* key, int64_t otherwise, int64_t least, int64_t most) {
  const Value* const value = study.find(key);
  if (!value) return otherwise;
  if (!value->is_number() || value->as_double() < static_cast<double>(least) ||
      value->as_double() > static_cast<double>(most))
    throw wrong(*value,
                concat("\"", key, "\" is a whole number from ", least, " to ", most, ", found ", shown_value(*value)));
  return value->as_int();
}

double real(const Value& study, const char* key, double otherwise) {
  const Value* const value = study.find(key);
  if (!value) return otherwise;
  if (!value->is_number() || value->as_double() <= 0)
    throw wrong(*value, concat("\"", key, "\" is a number above 0, found ", shown_value(*value)));
  return value->as_double();
}

std::string word(const Value& study, const char* key, const std::vector<std::string>& choices) {
  const Value* const value = study.find(key);
  if (!value) return {};
  for (const std::string& choice : choices)
    if (value->is_string() && value->as_string() == choice) return choice;
  const std::string found = value->is_string() ? value->as_string() : std::string();
  throw wrong(*value, concat("\"", key, "\" is ", quoted_choice(choices), ", found ", shown_value(*value),
                             did_you_mean(found, choices)));
}

std::string text(const Value& study, const char* key) {
  const Value* const value = study.find(key);
  if (!value) return {};
  if (!value->is_string() || value->as_string().empty())
    throw wrong(*value, concat("\"", key, "\" is a text, found ", shown_value(*value)));
  return value->as_string();
}

void check_keys(const Value& study) {
  for (const Value::Member& m : study.members())
    if (m.key.find_first_of("_$") != 0 && std::find(kKeys.begin(), kKeys.end(), m.key) == kKeys.end())
      throw wrong_key(m.value, concat("a study has no key \"", shown(m.key), "\"", suggestion(m.key, kKeys)));
}

void read_base(const Value& study, StudyFile& file) {
  const Value* const base = study.find("base");
  if (!base) throw wrong(study, "the study has no \"base\": the config that its cells change, a file or an object");
  if (base->is_object()) {
    file.base = *base;
    return;
  }
  const std::string name = text(study, "base");
  const fs::path path = fs::absolute(fs::path(file.path).parent_path() / name).lexically_normal();
  std::error_code unknown;
  if (!fs::exists(path, unknown))
    throw wrong(*base, concat("\"base\" names ", shown(name), ", but there is no file ", shown(path.string()),
                              "\n   a path is relative to the study's file"));
  file.base_path = path.string();
}

void read_warmup(const Value& study, Warmup& warmup) {
  const Value* const value = study.find("warmup");
  if (!value) return;
  if (value->is_number()) {
    warmup.first = whole(study, "warmup", 3, 0, 1000000);
    return;
  }
  if (!value->is_object())
    throw wrong(*value, concat("\"warmup\" is a number of steps or an object such as {\"rule\": \"steady\", "
                               "\"window\": 5, \"tolerance\": 0.1}, found ",
                               shown_value(*value)));
  const std::vector<std::string> keys = {"rule", "steps", "window", "tolerance"};
  for (const Value::Member& m : value->members())
    if (std::find(keys.begin(), keys.end(), m.key) == keys.end())
      throw wrong_key(m.value, concat("\"warmup\" has no key \"", shown(m.key), "\"", suggestion(m.key, keys)));
  const std::string rule = word(*value, "rule", {"first", "steady", "first_steps"});
  warmup.steady = rule == "steady";
  if (rule == "first_steps") {
    for (const char* key : {"window", "tolerance"})
      if (const Value* const wrong_one = value->find(key))
        throw wrong_key(*wrong_one,
                        concat("\"", key, "\" goes with the rule \"steady\"; \"first_steps\" has \"steps\""));
    warmup.only_first = whole(*value, "steps", 5, 1, 1000000);
    return;
  }
  warmup.first = whole(*value, "steps", warmup.steady ? 1 : 3, 0, 1000000);
  warmup.window = whole(*value, "window", 5, 2, 1000000);
  warmup.tolerance = real(*value, "tolerance", 0.1);
}

// Which step stands for a run.
void read_figure(const Value& study, Warmup& warmup) {
  const std::string figure = word(study, "figure", {"median", "p10", "minimum"});
  if (figure.empty()) return;
  if (warmup.only_first > 0)
    throw wrong(*study.find("figure"), "the rule \"first_steps\" has the mean as its figure: leave \"figure\" out");
  warmup.quantile = figure == "median" ? 0.5 : figure == "p10" ? 0.1 : 0;
}

// A number, or an object that says how small a difference the study should be able to show.
Repeats repeats_of(const Value& study) {
  Repeats repeats;
  const Value* const value = study.find("repeats");
  if (!value || !value->is_object()) {
    repeats.most = whole(study, "repeats", repeats.most, 1, 10000);
    return repeats;
  }
  const std::vector<std::string> keys = {"until", "least", "most"};
  for (const Value::Member& m : value->members())
    if (std::find(keys.begin(), keys.end(), m.key) == keys.end())
      throw wrong_key(m.value, concat("\"repeats\" has no key \"", shown(m.key), "\"", suggestion(m.key, keys)));
  if (!value->find("until"))
    throw wrong(*value, "\"repeats\" as an object needs \"until\": the difference that is to be shown, 0.03 for 3 %");
  repeats.until = real(*value, "until", 0);
  repeats.least = whole(*value, "least", repeats.least, 3, 10000);
  repeats.most = whole(*value, "most", 100, repeats.least, 10000);
  return repeats;
}

void read_cross(const Value& study, StudyFile& file) {
  const std::string cross = word(study, "cross", {"full", "fractional", "one_at_a_time", "none"});
  if (cross.empty()) file.cross = file.factors.empty() || !file.rows.empty() ? Cross::none : Cross::full;
  if (cross == "full") file.cross = Cross::full;
  if (cross == "fractional") file.cross = Cross::fractional;
  if (cross == "one_at_a_time") file.cross = Cross::one_at_a_time;
  file.fraction = whole(study, "fraction", 2, 2, 1 << 20);
  if (study.find("fraction") && file.cross != Cross::fractional)
    throw wrong(*study.find("fraction"), "\"fraction\" goes with \"cross\": \"fractional\", which is not said here");
  if (file.cross != Cross::none && file.factors.empty())
    throw wrong(*study.find("cross"), "\"cross\" needs \"factors\", and the study has none");
  if (file.cross == Cross::none && file.rows.empty())
    throw wrong(study, "the study has no cells: it needs \"factors\", with \"cross\", or \"rows\"");
}

// Whether some level or row is of a section that decides over a run's losses, whatever computes them.
bool changes_what_is_learned(const StudyFile& file) {
  const auto learned = [](const std::vector<Change>& changes) {
    return std::any_of(changes.begin(), changes.end(), [](const Change& change) {
      const std::string section = change.key.substr(0, change.key.find('.'));
      for (const char* one :
           {"model", "dataset", "optimizer", "scheduler", "param_groups", "seed", "gradient_clipping"})
        if (section == one) return true;
      return false;
    });
  };
  for (const Factor& factor : file.factors)
    for (const Level& level : factor.levels)
      if (learned(level.changes)) return true;
  return std::any_of(file.rows.begin(), file.rows.end(), [&](const Row& row) { return learned(row.changes); });
}

// Cells that differ in what they learn are not gated by equal losses, unless the study says that they are equal.
void read_gate(const Value& study, StudyFile& file) {
  if (const Value* const outcome = study.find("outcome")) file.outcomes = outcomes_of(*outcome), file.gate = 0;
  if (changes_what_is_learned(file)) file.gate = 0;
  const Value* const gate = study.find("gate");
  if (gate && gate->is_bool() && !gate->as_bool())
    file.gate = 0;
  else if (gate)
    file.gate = real(study, "gate", file.gate);
}

// The seed is the study's then, and no cell's.
void read_seeds(const Value& study, StudyFile& file) {
  file.seed = static_cast<uint64_t>(whole(study, "seed", 1, 0, int64_t{1} << 52));
  const Value* const per_repeat = study.find("seed_per_repeat");
  if (!per_repeat) return;
  if (!per_repeat->is_bool())
    throw wrong(*per_repeat, concat("\"seed_per_repeat\" is true or false, found ", shown_value(*per_repeat)));
  file.seed_per_repeat = per_repeat->as_bool();
  if (!file.seed_per_repeat) return;
  std::vector<Change> changes = file.set;
  const auto add = [&](const std::vector<Change>& more) { changes.insert(changes.end(), more.begin(), more.end()); };
  for (const Factor& factor : file.factors)
    for (const Level& level : factor.levels) add(level.changes);
  for (const Row& row : file.rows) add(row.changes);
  for (const Change& change : changes)
    if (change.key == "seed")
      throw wrong(*per_repeat,
                  "\"seed_per_repeat\" and a change of \"seed\" both decide over the runs' seed\n   leave one of them "
                  "out: with it repeat n has the seed \"seed\" + n - 1 in every cell");
}

void read_places(const Value& study, StudyFile& file) {
  file.name = study.find("name") ? text(study, "name") : fs::path(file.path).stem().string();
  const std::string folder = text(study, "output_dir");
  file.output_dir = fs::absolute(folder.empty() ? "studies/" + file.name : folder).lexically_normal().string();
  if (study.find("hosts")) file.hosts = beside(file.path, text(study, "hosts"));
  if (const Value* const variables = study.find("environment")) file.environment = environment_of(*variables);
}

}  // namespace

std::string beside(const std::string& path, const std::string& file) {
  return (fs::path(path).parent_path() / file).lexically_normal().string();
}

StudyFile read_study(const std::string& path) {
  StudyFile file;
  file.path = path;
  const Value study = read_json_file(path);
  if (!study.is_object()) throw wrong(study, concat("a study is an object, found ", study.type_name()));
  check_keys(study);
  file.text = study;
  read_base(study, file);
  read_places(study, file);
  if (const Value* const set = study.find("set")) file.set = changes_of(*set, "set");
  if (const Value* const factors = study.find("factors")) file.factors = factors_of(*factors);
  file.reference.assign(file.factors.size(), 0);
  if (const Value* const reference = study.find("reference")) file.reference = reference_of(*reference, file.factors);
  if (const Value* const rows = study.find("rows")) file.rows = rows_of(*rows, file.factors);
  if (const Value* const list = study.find("constraints")) file.constraints = constraints_of(*list, file.factors);
  read_cross(study, file);
  read_warmup(study, file.warmup);
  read_gate(study, file);
  const std::string keep = word(study, "keep", {"tokens_per_rank", "global_batch"});
  file.keep = keep.empty() ? Keep::nothing : keep == "global_batch" ? Keep::global_batch : Keep::tokens_per_rank;
  read_figure(study, file.warmup);
  file.repeats = repeats_of(study);
  read_rules(study, file);
  read_seeds(study, file);
  file.world_size = whole(study, "world_size", 0, 1, 1 << 20);
  file.memory_limit = whole(study, "memory_limit_bytes", 0, 1 << 20, int64_t{1} << 52);
  file.budget_s = real(study, "budget_s", 0);
  file.timeout_s = real(study, "timeout_s", file.timeout_s);
  file.peak_tflops = real(study, "peak_tflops", 0);
  file.trim = real(study, "trim", 0);
  if (file.trim > 0.25)
    throw wrong(*study.find("trim"), "\"trim\" is at most 0.25, or half of all repeats is set aside");
  file.hardware = text(study, "hardware");
  // A name stays one; a path begins at the study's file, as the base's does.
  if (file.hardware.find('/') != std::string::npos || file.hardware.ends_with(".json"))
    file.hardware = beside(path, file.hardware);
  if (const Value* const noise = study.find("noise_cell")) file.noise_cell = noise->as_bool();
  if (file.repeats.until > 0 && !file.noise_cell)
    throw wrong(*study.find("repeats"), "\"until\" counts repeats by the noise cell, and \"noise_cell\" is false");
  return file;
}

}  // namespace drivetrain::study
