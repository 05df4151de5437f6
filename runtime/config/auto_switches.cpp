#include "config/auto_switches.h"

#include <map>
#include <vector>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/text_values.h"
#include "base/value_error.h"

namespace drivetrain {
namespace {

struct Section {
  std::string key, kind;
  int64_t rank = 0;  // 0: not on this device
  std::string devices;
};

int64_t rank_on(const SectionForm& form, const std::string& device) {
  const Value* const rank = form.automatic.find(device);
  return rank ? rank->as_int() : 0;
}

std::string devices_of(const SectionForm& form) {
  std::vector<std::string> names;
  if (form.automatic.is_object())
    for (const Value::Member& m : form.automatic.members()) names.push_back(m.key);
  return join(names);
}

class Switches {
 public:
  Switches(const Value& config, const SectionOf& section_of, const HasOnePlace& has_one_place,
           const std::string& device)
      : has_one_place_(has_one_place), device_(device) {
    for (const Value::Member& m : config.members())
      if (const auto fact = section_of(m.key)) sort_in(m, *fact);
  }

  const std::vector<Section>& open() const { return open_; }

  bool is_on(const Section& section) const { return section.rank > 0 && rival_of(section).empty(); }

  std::string rule(const Section& section) const {
    const std::string rival = section.rank > 0 ? rival_of(section) : "";
    if (!rival.empty()) return concat("\"auto\": off where ", shown(rival), " is on");
    return section.devices.empty()
               ? "\"auto\": off, nothing here switches it on"
               : concat("\"auto\": on where the device is ", section.devices, "; here it is ", device_);
  }

 private:
  void sort_in(const Value::Member& m, const SectionFact& fact) {
    if (is_auto(m.value.find("enabled")))
      open_.push_back({m.key, fact.kind, rank_on(fact.form, device_), devices_of(fact.form)});
    else if (!is_switched_off(m.value, fact.form.off_unless_enabled))
      on_[fact.kind] = m.key;
  }

  // The section that has the kind's one place; "" for none.
  std::string rival_of(const Section& section) const {
    if (!has_one_place_(section.kind)) return {};
    if (const auto on = on_.find(section.kind); on != on_.end()) return on->second;
    for (const Section& other : open_)
      if (other.kind == section.kind && other.rank > section.rank) return other.key;
    return {};
  }

  const HasOnePlace& has_one_place_;
  const std::string device_;
  std::vector<Section> open_;
  std::map<std::string, std::string> on_;  // kind -> a section that is on anyway
};

// "enabled": "true", as DeepSpeed takes it.
void read_texts(Value& config, const SectionOf& section_of, Problems& problems) {
  for (Value::Member& m : config.members()) {
    const Value* const enabled = m.value.is_object() && section_of(m.key) ? m.value.find("enabled") : nullptr;
    const auto plain = enabled ? plain_value("boolean", *enabled) : std::nullopt;
    if (!plain) continue;
    problems.note(enabled->where,
                  concat(shown(m.key), ".enabled is ", describe(*enabled), "; it is read as ", plain->to_json()));
    m.value.set("enabled", *plain);
  }
}

Value settle(Value config, const Switches& switches, Problems& problems) {
  for (const Section& section : switches.open()) {
    Value& value = const_cast<Value&>(*config.find(section.key));
    const Value old = *value.find("enabled");
    const bool on = switches.is_on(section);
    Value& fresh = value.set("enabled", on);
    fresh.where = old.where, fresh.key_where = old.key_where;
    problems.resolve(old.where, section.key + ".enabled", on ? "true" : "false", switches.rule(section));
  }
  return config;
}

}  // namespace

Value with_switches(Value config, const SectionOf& section_of, const HasOnePlace& has_one_place,
                    const std::string& device, Problems& problems) {
  read_texts(config, section_of, problems);
  return settle(config, Switches(config, section_of, has_one_place, device), problems);
}

}  // namespace drivetrain
