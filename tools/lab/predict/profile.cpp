#include "predict/profile.h"

#include <algorithm>
#include <filesystem>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "base/suggest.h"

namespace drivetrain {
namespace {

// The loss of such systems reads and writes copies of 16-bit logits in float32, which are twice as large.
constexpr double kLossCopies = 2;

// Constants of one group of a profile, each with where it is from.
class Constants {
 public:
  Constants(const Value& group, const std::string& name, const Value& from) : group_(group), name_(name), from_(from) {}

  double number(const std::string& key, double most = 1e12) const {
    const std::string full = name_ + "." + key;
    const Value* const found = group_.find(key);
    if (!found)
      throw fail(ErrorCode::config, group_.where.text(), ": the profile has no ", full,
                 "\n   add the constant, and to \"from\" where it is from; 0 is a constant too");
    if (!found->is_number() || found->as_double() < 0 || found->as_double() > most)
      throw fail(ErrorCode::config, found->where.text(), ": ", full, " is a number from 0 to ", most, ", found ",
                 found->to_json());
    if (origin_of(from_, full).empty())
      throw fail(
          ErrorCode::config, found->where.text(), ": nothing says where ", full, " is from",
          "\n   add it to \"from\" of the profile: a data sheet, a measurement, or the rows that it is fitted to");
    return found->as_double();
  }

 private:
  const Value& group_;
  const std::string name_;
  const Value& from_;
};

std::vector<std::string> texts(const Value& value, const char* key) {
  std::vector<std::string> list;
  if (const Value* const found = value.find(key))
    for (const Value& one : found->items()) list.push_back(one.as_string());
  return list;
}

ProfileTime time_of(const Value& t, const Value& from) {
  const Constants c(t, "time", from);
  return {c.number("step_s"), c.number("owner_s"), c.number("update_bytes"), c.number("overlap", 1), texts(t, "waits")};
}

ProfileMemory memory_of(const Value& m, const Value& from) {
  const Constants c(m, "memory", from);
  return {c.number("overhead_gib"), c.number("whole_bytes"), c.number("shared_bytes"), c.number("logit_bytes"),
          c.number("limit_share", 1)};
}

void check_keys(const Value& s) {
  static const std::vector<std::string> known = {"assumptions", "hardware", "sets",      "time",         "memory",
                                                 "from",        "columns",  "constants", "shared_values"};
  for (const Value::Member& m : s.members())
    if (std::find(known.begin(), known.end(), m.key) == known.end())
      throw fail(ErrorCode::config, m.value.where.text(), ": a profile has no key ", shown(m.key),
                 suggestion(m.key, known));
}

Profile profile_of(const std::string& name, const Value& s) {
  if (!s.is_object())
    throw fail(ErrorCode::config, s.where.text(), ": a profile is an object with \"time\", \"memory\" or both, found ",
               s.type_name());
  check_keys(s);
  Profile profile;
  profile.name = name;
  const auto copy = [&](const char* key) { return s.find(key) ? *s.find(key) : Value::object(); };
  profile.from = copy("from"), profile.columns = copy("columns"), profile.constants = copy("constants");
  profile.assumptions = texts(s, "assumptions"), profile.sets = texts(s, "sets");
  if (const Value* const hardware = s.find("hardware")) profile.hardware = hardware->as_string();
  if (const Value* const other = s.find("shared_values")) profile.shared_values = other->as_string();
  if (const Value* const t = s.find("time")) profile.time = time_of(*t, profile.from);
  if (const Value* const m = s.find("memory")) profile.memory = memory_of(*m, profile.from);
  if (!profile.time && !profile.memory)
    throw fail(ErrorCode::config, s.where.text(), ": profile ", shown(name), " has neither \"time\" nor \"memory\"",
               "\n   add one of them; configs/published/systems.json has examples");
  return profile;
}

}  // namespace

Profile read_profile(const std::string& name, const std::string& folder) {
  std::error_code ignored;
  if (name.find('/') != std::string::npos || std::filesystem::is_regular_file(name, ignored))
    return profile_of(name, read_json_file(name));
  const Value file = read_json_file(folder + "/systems.json");
  const Value* const systems = file.find("systems");
  std::vector<std::string> names;
  if (systems)
    for (const Value::Member& m : systems->members()) names.push_back(m.key);
  if (const Value* const found = systems ? systems->find(name) : nullptr) return profile_of(name, *found);
  throw fail(ErrorCode::config, "there is no profile ", shown(name), " in ", folder, "/systems.json",
             suggestion(name, names), "\n   --profile takes the name of a system there or the path of a file with one");
}

StepWork with_profile(StepWork work, const ProfileTime& time) {
  (work.host_updated_bytes > 0 ? work.host_updated_bytes : work.updated_bytes) =
      time.update_bytes * work.updated_elements;
  work.norm_bytes = 0;  // step_s has it
  if (work.dtype != "float32") work.loss_bytes *= kLossCopies;
  work.overlap = time.overlap;
  work.fixed_s = time.step_s + (work.owners > 1 ? time.owner_s * work.owners : 0);
  for (MessageWork& message : work.messages)
    for (const std::string& begin : time.waits)
      if (message.what.starts_with(begin)) message.beside_micro_batches = 0;
  return work;
}

std::string origin_of(const Value& from, const std::string& constant) {
  if (!from.is_object()) return {};
  for (std::string key = constant;;) {
    if (const Value* const said = from.find(key)) return said->as_string();
    const size_t dot = key.rfind('.');
    if (dot == std::string::npos) break;
    key.resize(dot);
  }
  const Value* const all = from.find("*");
  return all ? all->as_string() : "";
}

}  // namespace drivetrain
