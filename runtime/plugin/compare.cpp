#include "plugin/compare.h"

#include <algorithm>
#include <set>
#include <sstream>

#include <drivetrain/error.h>
#include <drivetrain/fingerprint.h>
#include <drivetrain/plugin.h>

#include "base/printable.h"

namespace drivetrain {
namespace {

enum class FieldRule { headers, equal, equal_if_used, warn, note, cpu, cuda_architectures };

struct FieldRow {
  const char* field;
  FieldRule rule;
  const char* reason;  // "KIND/NAME refused: <reason>"
};
constexpr FieldRow kFields[] = {
    {"door", FieldRule::equal, "made for another door version"},
    {"api", FieldRule::headers, "built against other contract headers"},
    {"libtorch", FieldRule::equal, "built for a different LibTorch"},
    {"libtorch_build_id", FieldRule::warn, ""},  // same version, different build
    {"cxx11_abi", FieldRule::equal, "built with the other C++11 ABI"},
    {"compiler_abi", FieldRule::equal, "built with another compiler ABI"},
    {"containers", FieldRule::equal, "built with other debug containers"},
    {"sanitizer", FieldRule::equal, "built with another sanitizer"},
    {"cuda_runtime", FieldRule::equal_if_used, "linked with another CUDA runtime"},
    {"nccl_major", FieldRule::equal_if_used, "linked with another collectives library"},
    {"cuda_architectures", FieldRule::cuda_architectures, "not built for this GPU"},
    {"cpu", FieldRule::cpu, "built for another processor"},
    {"sdk", FieldRule::note, ""},
    {"compiler", FieldRule::note, ""},
    {"libstdcxx", FieldRule::note, ""},
};

std::string value_text(const Value* v) {
  if (!v) return "nothing";
  const std::string text = v->is_string() ? v->as_string() : v->to_json();
  return text.empty() ? "none" : shown(text);
}

std::set<std::string> split_words(const std::string& text) {
  std::istringstream in(text);
  std::set<std::string> list;
  for (std::string word; in >> word;) list.insert(word);
  return list;
}

// sm_90 code runs on 9.x from 9.0 on; compute_90 (PTX) is translated for anything from 9.0 on.
bool covers(const std::string& architectures, int device) {
  for (const std::string& word : split_words(architectures)) {
    const size_t digits = word.find('_');
    const int arch = digits == std::string::npos ? 0 : std::atoi(word.c_str() + digits + 1);
    if (arch == 0 || arch > device) continue;
    if (word.compare(0, 7, "compute") == 0 || arch / 10 == device / 10) return true;
  }
  return false;
}

std::string missing_words(const std::string& wanted, const std::string& offered) {
  const std::set<std::string> have = split_words(offered);
  std::string missing;
  for (const std::string& word : split_words(wanted))
    if (!have.count(word)) missing += (missing.empty() ? "" : " ") + word;
  return missing;
}

// The headers that a plugin reaches, each by its digest. The runtime may have further ones.
void compare_headers(const Value& plugin, const Value& runtime, FieldVerdict& f) {
  const Value *reached = plugin.find("api"), *own = runtime.find("api");
  const bool listed = reached && reached->is_object() && !reached->members().empty();
  f.plugin = listed ? concat(reached->members().size(), " headers") : "none listed";
  f.runtime = own && own->is_object() ? concat(own->members().size(), " headers") : "none listed";
  f.level = FieldVerdict::refusal;
  f.verdict = "the headers it was built against must be listed";
  if (!listed) return;
  std::string differ;
  for (const auto& [name, digest] : reached->members()) {
    const Value* const same = own && own->is_object() ? own->find(name) : nullptr;
    if (value_text(same) != value_text(&digest)) differ += (differ.empty() ? "" : ", ") + shown(name);
  }
  f.verdict = differ.empty() ? "" : "differ: " + differ;
  if (differ.empty()) f.level = FieldVerdict::same;
}

FieldVerdict compare_field(const FieldRow& row, const Value& plugin, const Value& runtime, const Machine& machine,
                           bool cuda) {
  FieldVerdict f{FieldVerdict::same, row.field, value_text(plugin.find(row.field)), value_text(runtime.find(row.field)),
                 ""};
  const bool differs = f.plugin != f.runtime;
  switch (row.rule) {
    case FieldRule::headers:
      compare_headers(plugin, runtime, f);
      break;
    case FieldRule::equal:
      if (differs) f.level = FieldVerdict::refusal, f.verdict = "must match";
      break;
    case FieldRule::equal_if_used:
      if (differs && f.plugin != "0") f.level = FieldVerdict::refusal, f.verdict = "must match";
      break;
    case FieldRule::warn:
      if (differs) f.level = FieldVerdict::warning, f.verdict = "differs, accepted with a warning";
      break;
    case FieldRule::note:
      if (differs) f.level = FieldVerdict::note, f.verdict = "differs, accepted";
      break;
    case FieldRule::cpu: {
      f.runtime = machine.cpu;
      const std::string missing = missing_words(f.plugin, f.runtime);
      if (!missing.empty()) f.level = FieldVerdict::refusal, f.verdict = "this processor lacks " + missing;
      break;
    }
    case FieldRule::cuda_architectures:
      f.runtime = machine.cuda_arch ? concat("sm_", machine.cuda_arch) : "none";
      if (cuda && machine.cuda_arch && !covers(f.plugin, machine.cuda_arch))
        f.level = FieldVerdict::refusal, f.verdict = "this device is not covered";
      break;
  }
  return f;
}

std::string reason_of(const std::vector<FieldVerdict>& fields) {
  std::string text;
  for (const FieldVerdict& f : fields) {
    if (f.level != FieldVerdict::refusal) continue;
    for (const FieldRow& row : kFields)
      if (f.field == row.field) text += (text.empty() ? "" : "; ") + std::string(row.reason);
  }
  return text;
}

// A right build for the wrong machine needs another flag; everything else needs this SDK.
std::string remedy_for(const std::vector<FieldVerdict>& fields) {
  std::string machine;
  for (const FieldVerdict& f : fields) {
    if (f.level != FieldVerdict::refusal) continue;
    if (f.field == "cpu")
      machine += (machine.empty() ? "" : " and ") + std::string("an -march that this processor has");
    else if (f.field == "cuda_architectures")
      machine += (machine.empty() ? "" : " and ") + ("CMAKE_CUDA_ARCHITECTURES that cover " + f.runtime);
    else
      return "rebuild against this SDK (find_package(Drivetrain " DRIVETRAIN_SDK_VERSION "))";
  }
  return "rebuild with " + machine;
}

std::string padded(std::string text, size_t width) {
  return text.append(width > text.size() ? width - text.size() : 1, ' ');
}

// A digest is told apart by its beginning; the JSON form has it whole.
std::string side_text(const FieldVerdict& f, const std::string& value) {
  const bool digest = f.field == "libtorch_build_id";
  return digest && value.size() > 16 ? value.substr(0, 16) + "..." : value;
}

}  // namespace

Machine this_machine() {
  Machine machine{DRIVETRAIN_FP_MACHINE, 0};
#ifdef __x86_64__
  // The names must be literals, so no loop.
  if (__builtin_cpu_supports("avx")) machine.cpu += " avx";
  if (__builtin_cpu_supports("avx2")) machine.cpu += " avx2";
  if (__builtin_cpu_supports("fma")) machine.cpu += " fma";
  if (__builtin_cpu_supports("avx512f")) machine.cpu += " avx512f";
  if (__builtin_cpu_supports("avx512bw")) machine.cpu += " avx512bw";
  if (__builtin_cpu_supports("avx512dq")) machine.cpu += " avx512dq";
  if (__builtin_cpu_supports("avx512vl")) machine.cpu += " avx512vl";
  if (__builtin_cpu_supports("avx512bf16")) machine.cpu += " avx512bf16";
  if (__builtin_cpu_supports("avx512vnni")) machine.cpu += " avx512vnni";
#endif
  return machine;
}

Value with_reached_headers(Value fingerprint, const std::vector<std::string>& headers) {
  const Value* const all = fingerprint.find("api");
  Value reached = Value::object();
  for (const std::string& name : headers) {
    const Value* const digest = all && all->is_object() ? all->find(name) : nullptr;
    reached.set(name, digest ? *digest : Value("no digest"));
  }
  fingerprint.set("api", std::move(reached));
  return fingerprint;
}

static_assert(kDrivetrainEntryLayout == DRIVETRAIN_FP_ENTRY_LAYOUT,
              "plugin.h and fingerprint.h give the entry layout different numbers");

const Value& runtime_fingerprint() {
  static const Value* const leaked = new Value(parse_json(DRIVETRAIN_FINGERPRINT, "fingerprint"));
  return *leaked;
}

std::vector<FieldVerdict> compare_fingerprints(const Value& plugin, const Value& runtime, const Machine& machine,
                                               bool uses_cuda) {
  std::vector<FieldVerdict> list;
  for (const FieldRow& row : kFields) list.push_back(compare_field(row, plugin, runtime, machine, uses_cuda));
  return list;
}

bool is_refused(const std::vector<FieldVerdict>& fields) {
  return std::any_of(fields.begin(), fields.end(), [](const auto& f) { return f.level == FieldVerdict::refusal; });
}

std::string field_lines(const std::vector<FieldVerdict>& fields, bool also_same) {
  size_t name = 8, plugin = 0, runtime = 0;
  for (const FieldVerdict& f : fields) {
    if (f.level == FieldVerdict::same && !also_same) continue;
    name = std::max(name, f.field.size());
    // A long list of processor features stands out of its column rather than widen it for all.
    if (side_text(f, f.plugin).size() <= 24) plugin = std::max(plugin, side_text(f, f.plugin).size());
    if (side_text(f, f.runtime).size() <= 24) runtime = std::max(runtime, side_text(f, f.runtime).size());
  }
  std::string text;
  for (const FieldVerdict& f : fields) {
    if (f.level == FieldVerdict::same && !also_same) continue;
    text += "\n  " + padded(f.field, name + 4) + "plugin " + padded(side_text(f, f.plugin), plugin + 4) + "runtime " +
            padded(side_text(f, f.runtime), runtime + 4) + (f.verdict.empty() ? "ok" : f.verdict);
  }
  return text;
}

std::string refusal_text(const std::string& who, const std::string& file, const std::vector<FieldVerdict>& fields) {
  size_t width = 8;
  for (const FieldVerdict& f : fields)
    if (f.level != FieldVerdict::same) width = std::max(width, f.field.size());
  return who + " refused: " + reason_of(fields) + "\n  " + padded("file", width + 4) + file +
         field_lines(fields, false) + "\n  " + padded("remedy", width + 4) + remedy_for(fields) +
         "; `drivetrain inspect FILE.so` repeats this check";
}

}  // namespace drivetrain
