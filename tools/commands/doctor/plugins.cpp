#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <drivetrain/toolkit/text.h>

#include "base/trust.h"
#include "contract/device_runtime.h"
#include "doctor/checks.h"
#include "plugin/kinds.h"
#include "plugin/open.h"

namespace drivetrain {
namespace {

// "where it was looked", one line each; folders that somebody named and that are not there are among what is refused.
void look_at_places(Findings& findings, const SearchPath& search) {
  std::string text;
  for (const SearchPath::Place& place : search.places)
    text += concat(text.empty() ? "" : "\n", one_line(place.path), " (", place.origin, ")");
  findings.ok("searched", text);
  if (search.allow) findings.ok("allowed", concat(search.allow->size(), " files by plugins.allow"));
}

// Only the open library shows what is missing for it, and what its tables say.
std::string opening_problem(const Found& found) {
  try {
    open_library(found.file);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

// The first device that the library has no code for; its fingerprint was compared with the first device only.
std::string uncovered_device(const Found& found) {
  if (!found.entry.uses_cuda || !device_runtime()) return "";
  for (int64_t i = 0; i < device_runtime()->count(); ++i) {
    const DeviceFacts facts = device_runtime()->facts(i);
    Machine machine = this_machine();
    machine.cuda_arch = facts.arch;
    const auto fields = compare_fingerprints(found.file->manifest.fingerprint, runtime_fingerprint(), machine, true);
    if (is_refused(fields)) return refusal_text(found.entry.id(), found.file->shown(), fields);
  }
  return "";
}

void look_at_usable(Findings& findings, const Found& found, std::map<std::string, std::vector<std::string>>& usable) {
  std::string problem = opening_problem(found);
  if (problem.empty()) problem = uncovered_device(found);
  if (!problem.empty()) return findings.problem(found.entry.id(), problem, "", ErrorCode::plugin);
  usable[found.entry.kind].push_back(found.entry.name);
  for (const FieldVerdict& field : found.file->fields)
    if (field.level == FieldVerdict::warning)
      findings.warning(found.entry.id(), concat(field.field, ": plugin ", field.plugin, ", runtime ", field.runtime),
                       "build it again against this SDK and this LibTorch");
}

// The bytes of every file of which something may be used.
Value digests_of(const Registry& registry) {
  Value digests = Value::object();
  for (const Found& found : registry.found()) {
    if (found.state != Found::usable) continue;
    const std::string name = std::filesystem::path(found.file->path).filename();
    if (!digests.find(name)) digests.set(name, sha256(read_bytes(found.file->path)));
  }
  return digests;
}

}  // namespace

void look_at_plugins(Findings& findings, const SearchPath& search, const Registry& registry) {
  findings.begin("plugins");
  look_at_places(findings, search);
  std::map<std::string, std::vector<std::string>> usable;
  for (const Found& found : registry.found()) {
    const std::string about = found.entry.kind.empty() ? "file" : found.entry.id();
    if (found.state == Found::usable)
      look_at_usable(findings, found, usable);
    else if (found.state == Found::refused)
      findings.problem(about, found.reason, "", ErrorCode::plugin);
    else
      findings.warning(about, concat(found.file->shown(), " is ", found.reason),
                       "remove one of the two from the search path");
  }
  findings.attempt("digests", [&] { findings.fact("plugins", digests_of(registry)); });
  std::string none;
  for (const KindRule& rule : kind_rules()) {
    const auto names = usable.find(rule.kind);
    if (names == usable.end())
      none += concat(none.empty() ? "" : ", ", rule.kind);
    else
      findings.ok(rule.kind, join(names->second));
  }
  if (!none.empty())
    findings.warning("none", concat("nothing is installed for ", none), "install what the run needs of these kinds");
}

}  // namespace drivetrain
