#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "findings/limits.h"
#include "launch/doctor/judge.h"

namespace drivetrain::program {
namespace {

constexpr const char* kAbsent = "not there";
constexpr double kSameSize = 0.02;  // machines of one kind differ by what their kernels keep
constexpr size_t kSomeFiles = 8;

// Of a host that was examined.
struct Facts {
  std::string host;
  const Value* of;
};

std::vector<Facts> facts_of(const SurveyReport& survey) {
  std::vector<Facts> list;
  for (const HostReport& host : survey.hosts)
    if (const Value* facts = host.doctor.find("facts")) list.push_back({host.name, facts});
  return list;
}

// A value that hosts have; they are in the order of the hostfile.
struct Shared {
  std::string text;
  double number = 0;
  std::vector<std::string> hosts;
};

// Those of most hosts first; among as many the first host's.
std::vector<Shared> most_common_first(std::vector<Shared> list) {
  std::stable_sort(list.begin(), list.end(),
                   [](const Shared& a, const Shared& b) { return a.hosts.size() > b.hosts.size(); });
  return list;
}

void add(std::vector<Shared>& list, const Shared& one) {
  const auto same = std::find_if(list.begin(), list.end(), [&](const Shared& other) {
    if (one.number != 0 && other.number != 0)
      return std::abs(one.number - other.number) <= kSameSize * std::max(one.number, other.number);
    return other.text == one.text;
  });
  if (same == list.end())
    list.push_back(one);
  else
    same->hosts.push_back(one.hosts.front());
}

std::string text_of(const Value* value) {
  return !value ? kAbsent : value->is_string() ? one_line(value->as_string()) : one_line(value->to_json());
}

std::vector<Shared> shared(const std::vector<Facts>& all, const std::string& key, bool is_size = false) {
  std::vector<Shared> list;
  for (const Facts& facts : all) {
    const Value* const value = facts.of->find(key);
    Shared one{text_of(value), 0, {facts.host}};
    if (is_size && value && value->is_number()) one.number = value->as_double(), one.text = bytes_text(one.number);
    add(list, one);
  }
  return most_common_first(std::move(list));
}

// "16 on a, b; 8 on c"
std::string who_has_what(const std::vector<Shared>& list) {
  std::string text;
  for (const Shared& one : list)
    text += concat(text.empty() ? "" : "; ", one.text.empty() ? "none" : one.text, " on ", join(one.hosts));
  return text;
}

// Files by name, of every host, as doctor gives them under `key`: name and digest.
using Digests = std::map<std::string, std::vector<Shared>>;

Digests digests_of(const std::vector<Facts>& all, const char* key) {
  std::set<std::string> names;
  for (const Facts& facts : all)
    if (const Value* files = facts.of->find(key); files && files->is_object())
      for (const auto& [name, digest] : files->members()) names.insert(name);
  Digests list;
  for (const std::string& name : names) {
    for (const Facts& facts : all) {
      const Value* const files = facts.of->find(key);
      add(list[name], {text_of(files ? files->find(name) : nullptr), 0, {facts.host}});
    }
    list[name] = most_common_first(list[name]);
  }
  return list;
}

// What each host has otherwise than most others.
std::map<std::string, std::vector<std::string>> deviations(const Digests& digests) {
  std::map<std::string, std::vector<std::string>> list;
  for (const auto& [name, values] : digests)
    for (size_t i = 1; i < values.size(); ++i)
      for (const std::string& host : values[i].hosts)
        list[host].push_back(values[i].text == kAbsent   ? name + " is not there"
                             : values[0].text == kAbsent ? name + " is there alone"
                                                         : concat(name, " is ", values[i].text.substr(0, 12), ", not ",
                                                                  values[0].text.substr(0, 12)));
  return list;
}

void judge_files(Findings& findings, const std::vector<Facts>& all, const char* key, const std::string& about,
                 const std::string& remedy, ErrorCode code) {
  const Digests digests = digests_of(all, key);
  if (digests.empty()) return;
  const auto differ = deviations(digests);
  if (differ.empty())
    return findings.ok(
        about, concat(digests.size(), digests.size() == 1 ? " file, " : " files, ", "the same bytes on all hosts"));
  for (const auto& [host, files] : differ) {
    const std::vector<std::string> some(
        files.begin(), files.begin() + static_cast<std::ptrdiff_t>(std::min(files.size(), kSomeFiles)));
    findings.problem(about,
                     concat("host ", host, " differs from most others: ", join(some),
                            files.size() > kSomeFiles ? concat(" and ", files.size() - kSomeFiles, " more") : ""),
                     remedy, code);
  }
}

struct Compared {
  const char *key, *name;
  bool is_size;
};

// A run needs the same everywhere.
void judge_torch(Findings& findings, const std::vector<Facts>& all) {
  const auto release = shared(all, "libtorch"), build = shared(all, "libtorch_build_id");
  if (release.size() == 1 && build.size() == 1) return findings.ok("LibTorch", release[0].text + " on all hosts");
  findings.problem("LibTorch", release.size() > 1 ? who_has_what(release) : "other builds: " + who_has_what(build),
                   "use one torch wheel everywhere; DRIVETRAIN_TORCH says which, and goes along to all hosts");
}

// A run may do with different ones.
void judge_machines(Findings& findings, const std::vector<Facts>& all) {
  constexpr Compared kWarned[] = {
      {"driver", "driver", false}, {"cuda", "CUDA", false}, {"collectives", "NCCL", false}, {"gpus", "GPUs", false}};
  constexpr Compared kTold[] = {
      {"processor", "processor", false},   {"usable_cores", "cores", false}, {"memory_bytes", "memory", true},
      {"dev_shm_bytes", "/dev/shm", true}, {"ulimit_n", "ulimit -n", false}, {"ulimit_u", "ulimit -u", false},
      {"ulimit_l", "ulimit -l", false},    {"ulimit_f", "ulimit -f", false}, {"ulimit_s", "ulimit -s", false}};
  for (const Compared& one : kWarned)
    if (const auto values = shared(all, one.key); values.size() > 1)
      findings.warning(one.name, who_has_what(values),
                       "collectives are made for one kind of host: use the same on all");
  std::vector<std::string> same;
  for (const Compared& one : kTold) {
    const auto values = shared(all, one.key, one.is_size);
    if (values.size() == 1)
      same.emplace_back(one.name);
    else
      findings.ok(one.name, "differs: " + who_has_what(values));
  }
  if (!same.empty()) findings.ok("the same", join(same));
}

}  // namespace

void judge_differences(Findings& findings, const SurveyReport& survey) {
  const std::vector<Facts> all = facts_of(survey);
  if (all.size() < 2) return;
  findings.begin("differences");
  judge_files(findings, all, "files", "program",
              "install the same build on all hosts; `drivetrain launch --copy DIR` brings this one", ErrorCode::config);
  judge_files(findings, all, "plugins", "plugins",
              "install the same plugins on all hosts; `drivetrain launch --copy DIR` brings this host's",
              ErrorCode::plugin);
  judge_torch(findings, all);
  judge_machines(findings, all);
}

}  // namespace drivetrain::program
