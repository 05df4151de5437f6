#include "study/study_rules.h"

#include <algorithm>
#include <string>
#include <vector>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "base/suggest.h"
#include "study/study_levels.h"

namespace drivetrain::study {
namespace {

double allow_load_of(const Value& value) {
  if (!value.is_number() || value.as_double() <= 0 || value.as_double() > 1)
    throw wrong(value, concat("\"allow_load\" is the share of the host's CPU time that others may take during a run, "
                              "above 0 and at most 1, found ",
                              shown_value(value), "\n   0.1 allows a tenth of it; leave it out to keep every run"));
  return value.as_double();
}

std::string text_in(const Value& slot, const char* key) {
  const Value* const value = slot.find(key);
  if (!value) return "";
  if (!value->is_string() || value->as_string().empty())
    throw wrong(*value, concat("\"", key, "\" of a slot is ",
                               std::string(key) == "hosts" ? "the name of a hostfile" : "a text such as \"0-3\"",
                               ", found ", shown_value(*value)));
  return value->as_string();
}

void check_own_keys(const Value& value, const char* what, const std::vector<std::string>& keys) {
  for (const Value::Member& m : value.members())
    if (std::find(keys.begin(), keys.end(), m.key) == keys.end())
      throw wrong_key(m.value, concat(what, " has no key \"", shown(m.key), "\"", suggestion(m.key, keys)));
}

// What the study says of each of its array jobs itself, or what would make another kind of job.
constexpr const char* kOwnOptions[] = {"--array", "--parsable", "--wrap",  "--output", "--error", "--requeue",
                                       "--nodes", "--ntasks",   "--chdir", "--wait",   "--hold",  "--dependency",
                                       "-a",      "-o",         "-e",      "-N",       "-n",      "-D",
                                       "-W",      "-H",         "-d"};

void check_option(const Value& option) {
  if (!option.is_string() || !option.as_string().starts_with('-'))
    throw wrong(option, concat("\"options\" are words of sbatch such as \"--partition=gpu\", found ",
                               shown_value(option), "\n   an option and its value are one word: \"--partition=gpu\""));
  const std::string& text = option.as_string();
  for (const char* const own : kOwnOptions)
    if (text == own || text.starts_with(std::string(own) + "=") || (own[1] != '-' && text.starts_with(own)))
      throw wrong(option, concat("\"", shown(text),
                                 "\" is not the study's to take: it submits one array job of tasks on "
                                 "one host each, and says ",
                                 own, " itself\n   leave it out"));
}

Dispatch slurm_of(const Value& value) {
  if (!value.is_object())
    throw wrong(value,
                concat("\"slurm\" is {\"options\": [\"--partition=gpu\", ...], \"at_once\": N}, or {} for neither, "
                       "found ",
                       shown_value(value)));
  check_own_keys(value, "\"slurm\"", {"options", "at_once"});
  Dispatch dispatch;
  dispatch.is_slurm = true;
  if (const Value* const options = value.find("options")) {
    if (!options->is_array())
      throw wrong(*options, concat("\"options\" is a list of words, found ", shown_value(*options)));
    for (const Value& option : options->items()) {
      check_option(option);
      dispatch.slurm.options.push_back(option.as_string());
    }
  }
  if (const Value* const at_once = value.find("at_once")) {
    if (!at_once->is_int() || at_once->as_int() < 1)
      throw wrong(*at_once, concat("\"at_once\" is a whole number of tasks from 1, found ", shown_value(*at_once)));
    dispatch.slurm.at_once = at_once->as_int();
  }
  return dispatch;
}

Dispatch dispatch_of(const Value& value, const std::string& study_path) {
  const auto refuse = [](const Value& at) {
    throw wrong(at, concat("\"dispatch\" is {\"slots\": N}, or {\"slots\": [{\"cores\": \"0-3\", \"devices\": \"0\"}, "
                           "...]}, or {\"slots\": [{\"hosts\": HOSTFILE}, ...]}, or {\"slurm\": {...}}, found ",
                           shown_value(at)));
  };
  if (!value.is_object()) refuse(value);
  check_own_keys(value, "\"dispatch\"", {"slots", "slurm"});
  if (const Value* const slurm = value.find("slurm")) {
    if (value.find("slots"))
      throw wrong(value,
                  "\"slots\" are places that are named here, and \"slurm\" takes others\n   leave one of them out");
    return slurm_of(*slurm);
  }
  const Value* const slots = value.find("slots");
  if (!slots) refuse(value);
  Dispatch dispatch;
  if (slots->is_array()) {
    for (const Value& slot : slots->items()) {
      if (!slot.is_object()) refuse(slot);
      check_own_keys(slot, "a slot", {"cores", "devices", "hosts"});
      const bool has_cores = slot.find("cores") != nullptr, has_hosts = slot.find("hosts") != nullptr;
      if (has_cores == has_hosts || (has_hosts && slot.find("devices")))
        throw wrong(slot,
                    "a slot that is listed is {\"cores\": \"0-3\"} of this host, with \"devices\" or without, or "
                    "{\"hosts\": HOSTFILE}");
      if (!dispatch.listed.empty() && has_hosts == dispatch.listed.front().hosts.empty())
        throw wrong(slot, "slots are all parts of this host, or all of them are hosts");
      dispatch.listed.push_back({text_in(slot, "cores"), text_in(slot, "devices"),
                                 has_hosts ? beside(study_path, text_in(slot, "hosts")) : ""});
    }
    if (dispatch.listed.empty()) refuse(*slots);
    dispatch.slots = static_cast<int64_t>(dispatch.listed.size());
    return dispatch;
  }
  const bool whole = slots->is_number() && slots->as_double() >= 1 && slots->as_double() <= 4096;
  if (!whole || slots->as_double() != static_cast<double>(static_cast<int64_t>(slots->as_double()))) refuse(*slots);
  dispatch.slots = static_cast<int64_t>(slots->as_double());
  return dispatch;
}

// `most`: repeats of the study.
EarlyStop early_stop_of(const Value& value, int64_t most) {
  const auto refuse = [](const Value& at) {
    throw wrong(
        at,
        concat("\"early_stop\" is {\"after\": REPEATS, \"level\": CHANCE}, with 3 repeats or more and a chance above 0 "
               "and at most 0.5 that the best cell is stopped, found ",
               shown_value(at)));
  };
  if (!value.is_object()) refuse(value);
  check_own_keys(value, "\"early_stop\"", {"after", "level"});
  EarlyStop rule{3, 0.05};
  if (const Value* const after = value.find("after")) {
    if (!after->is_number() || !(after->as_double() >= 3 && after->as_double() <= 10000) ||
        after->as_double() != static_cast<double>(static_cast<int64_t>(after->as_double())))
      refuse(*after);
    rule.after = static_cast<int64_t>(after->as_double());
  }
  if (const Value* const level = value.find("level")) {
    if (!level->is_number() || !(level->as_double() > 0 && level->as_double() <= 0.5)) refuse(*level);
    rule.level = level->as_double();
  }
  if (rule.after >= most)
    throw wrong(value, concat("\"early_stop\" looks first after ", rule.after, " repeats, and the study has ", most,
                              "\n   ask for more \"repeats\", or leave it out"));
  return rule;
}

}  // namespace

void read_rules(const Value& study, StudyFile& file) {
  if (const Value* const load = study.find("allow_load")) file.allow_load = allow_load_of(*load);
  if (const Value* const dispatch = study.find("dispatch")) file.dispatch = dispatch_of(*dispatch, file.path);
  if (const Value* const budget = study.find("budget_s"); budget && file.dispatch.is_slurm)
    throw wrong(*budget,
                "\"budget_s\" counts time on this host, and runs are tasks of SLURM\n   leave it out; sbatch's "
                "--time and --qos are \"options\" of \"slurm\"");
  if (const Value* const rule = study.find("early_stop")) file.early_stop = early_stop_of(*rule, file.repeats.most);
}

}  // namespace drivetrain::study
