#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "findings/limits.h"
#include "launch/doctor/fields.h"
#include "launch/doctor/judge.h"

namespace drivetrain::program {
namespace {

std::string gpus_text(const Value& facts) {
  const Value* const gpus = facts.find("gpus");
  if (!gpus || !gpus->is_array() || gpus->items().empty()) return "no GPU";
  const std::string name = gpus->items().front().is_string() ? gpus->items().front().as_string() : "GPU";
  return concat(gpus->items().size(), " x ", one_line(name));
}

// "16 cores, 62.9 GB of memory, /dev/shm 31.4 GB, LibTorch 2.11.0, no GPU, 54 files of plugins"
std::string summary_of(const Value& doctor) {
  const Value* const facts = doctor.find("facts");
  if (!facts || !facts->find("cores")) return "examined";
  const Value* const plugins = facts->find("plugins");
  return concat(number_field(*facts, "usable_cores"), " cores, ", bytes_text(number_field(*facts, "memory_bytes")),
                " of memory, /dev/shm ", bytes_text(number_field(*facts, "dev_shm_bytes")), ", LibTorch ",
                one_line(text_field(*facts, "libtorch")), ", ", gpus_text(*facts), ", ",
                plugins && plugins->is_object() ? plugins->members().size() : 0, " files of plugins");
}

// Something that doctor found on one or several hosts.
struct Common {
  Finding finding;
  std::vector<std::string> hosts;
};

Finding finding_of(const Value& value) {
  Finding finding;
  finding.level = text_field(value, "level") == "problem" ? Finding::problem : Finding::warning;
  finding.about = text_field(value, "about");
  finding.text = text_field(value, "found"), finding.remedy = text_field(value, "remedy");
  finding.code = number_field(value, "code") == 3 ? ErrorCode::plugin : ErrorCode::config;
  return finding;
}

std::vector<Common> found_on_hosts(const SurveyReport& survey) {
  std::vector<Common> list;
  for (const HostReport& host : survey.hosts) {
    const Value* const findings = host.doctor.find("findings");
    if (!findings || !findings->is_array()) continue;
    for (const Value& one : findings->items()) {
      if (text_field(one, "level") == "ok") continue;
      const Finding finding = finding_of(one);
      const auto same = std::find_if(list.begin(), list.end(), [&](const Common& other) {
        return other.finding.level == finding.level && other.finding.about == finding.about &&
               other.finding.text == finding.text && other.finding.remedy == finding.remedy;
      });
      if (same == list.end())
        list.push_back({finding, {host.name}});
      else
        same->hosts.push_back(host.name);
    }
  }
  return list;
}

}  // namespace

void judge_hosts(Findings& findings, const SurveyReport& survey) {
  findings.begin("hosts");
  size_t examined = 0;
  for (const HostReport& host : survey.hosts) {
    for (const HostProblem& problem : host.problems)
      findings.problem(host.name, problem.text, "", static_cast<ErrorCode>(problem.code));
    if (host.doctor.is_null()) continue;
    ++examined;
    findings.ok(host.name, summary_of(host.doctor));
  }
  for (const Common& common : found_on_hosts(survey)) {
    const bool on_all = common.hosts.size() == examined && examined > 1;
    const std::string where = on_all ? "all hosts" : join(common.hosts);
    const std::string text = concat(common.finding.about, ": ", common.finding.text);
    if (common.finding.level == Finding::problem)
      findings.problem(where, text, common.finding.remedy, common.finding.code);
    else
      findings.warning(where, text, common.finding.remedy);
  }
}

Value survey_value(const SurveyReport& survey, const Findings& findings) {
  Value value = findings.to_value(), hosts = Value::array(), pairs = Value::array();
  value.erase("facts");  // each host has its own
  for (const HostReport& host : survey.hosts) {
    Value one = Value::object();
    one.set("name", host.name);
    one.set("address", host.address.empty() ? Value() : Value(host.address));
    if (host.clock) {
      Value clock = Value::object();
      clock.set("ahead_of_this_host_s", host.clock->ahead_s), clock.set("within_s", host.clock->within_s);
      one.set("clock", std::move(clock));
    }
    one.set("doctor", host.doctor);
    hosts.items().push_back(std::move(one));
  }
  for (const PairReport& pair : survey.pairs) {
    Value one = Value::object();
    one.set("from", survey.hosts[pair.from].name), one.set("to", survey.hosts[pair.to].name);
    one.set("address", survey.hosts[pair.to].listens_at);
    one.set("port", survey.hosts[pair.to].port);
    one.set("connect_s", pair.took_s);
    one.set("problem", pair.problem.empty() ? Value() : Value(pair.problem));
    pairs.items().push_back(std::move(one));
  }
  value.set("hosts", std::move(hosts)), value.set("pairs", std::move(pairs));
  return value;
}

}  // namespace drivetrain::program
