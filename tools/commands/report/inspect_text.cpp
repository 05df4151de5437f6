// The tables of `drivetrain inspect` for people.
#include <cmath>
#include <sstream>

#include <drivetrain/evaluation.h>
#include <drivetrain/toolkit/text.h>

#include "base/suggest.h"
#include "base/trust.h"
#include "config/section_words.h"
#include "plugin/kinds.h"
#include "report/declared.h"
#include "report/inspect.h"
#include "report/text_table.h"

namespace drivetrain {
namespace {

std::string indented(const std::string& text, const std::string& indent) {
  std::istringstream in(text);
  std::string out;
  for (std::string line; std::getline(in, line);) out += indent + line + "\n";
  return out;
}

std::string number_text(double x) {  // whole numbers without a fraction
  return std::abs(x) < 1e15 && x == std::floor(x) ? concat(static_cast<int64_t>(x)) : Value(x).to_json();
}

std::string limits_text(const OptionField& f) {
  std::vector<std::string> parts;
  if (f.length) parts.push_back(concat(*f.length, " values"));
  if (f.minimum && f.maximum)
    parts.push_back(number_text(*f.minimum) + " to " + number_text(*f.maximum));
  else if (f.minimum)
    parts.push_back("at least " + number_text(*f.minimum));
  else if (f.maximum)
    parts.push_back("at most " + number_text(*f.maximum));
  if (!f.choices.empty()) parts.push_back(quoted_choice(f.choices));
  if (!f.auto_rule.empty()) parts.push_back(concat("\"auto\": ", f.auto_rule));
  return join(parts);
}

void add_option_rows(const OptionTable& table, void* defaults, const std::string& prefix, std::vector<TextRow>& rows) {
  for (const OptionField& f : table.fields()) {
    if (f.group) {
      add_option_rows(*f.group, f.member(defaults), prefix + f.name + ".", rows);
      continue;
    }
    std::string help = f.help;
    if (!f.aliases.empty()) help += " (also " + join(f.aliases) + ")";
    rows.push_back(
        {prefix + f.name, f.type, f.required ? "required" : f.get(defaults).to_json(), limits_text(f), help});
  }
}

std::string options_text(const OptionTable& table) {
  std::vector<TextRow> rows{{"name", "type", "default", "range", "meaning"}};
  add_option_rows(table, table.defaults().get(), "", rows);
  if (rows.size() == 1) return "options: none\n";
  std::string text = "options\n" + aligned(rows, "  ");
  std::vector<TextRow> others;
  for (const OptionRedirect& r : table.redirects()) others.push_back({r.name, r.message});
  return others.empty() ? text : text + "other names\n" + aligned(others, "  ");
}

// What may stand in the section instead of an object.
std::string forms_text(const SectionForm& form) {
  std::string text;
  for (const std::string& alias : form.aliases) text += ", also \"" + alias + "\"";
  if (!form.number.empty()) text += "; a number is its \"" + form.number + "\"";
  if (form.on.is_object()) text += "; true is " + form.on.to_json();
  if (form.off.is_object()) text += "; off at " + form.off.to_json();
  if (form.off_unless_enabled) text += "; off without \"enabled\": true";
  return text;
}

std::string section_text(const ManifestEntry& e) {
  if (!e.section.empty()) return "\"" + e.section + "\"" + forms_text(e.form);
  if (section_of_kind(e.kind).empty()) return "none: no config chooses one, every installed one is asked";
  if (e.kind == Evaluation::kKind)
    return "\"eval\": {\"sets\": {NAME: {\"type\": \"" + e.name + "\", \"params\": {...}}}}";
  return "\"" + section_of_kind(e.kind) + "\": {\"type\": \"" + e.name + "\", \"params\": {...}}";
}

// A few lines to a row; what is not there has none.
void add_declared_rows(const Declared& declared, std::vector<TextRow>& rows) {
  std::string can, cannot;
  for (const auto& [name, value] : declared.abilities) {
    std::string& list = value == "no" ? cannot : can;
    list += (list.empty() ? "" : ", ") + name + (value == "yes" || value == "no" ? "" : ": " + value);
  }
  if (!can.empty()) rows.push_back({"can", can});
  if (!cannot.empty()) rows.push_back({"cannot", cannot});
  if (!declared.offers.empty()) rows.push_back({"offers", join(declared.offers)});
  for (const auto& [ability, why] : declared.needs) rows.push_back({"needs", ability + ": " + why});
  if (!declared.untold.empty()) rows.push_back({"offers, needs", "not known without a run: " + declared.untold});
}

// What a run that goes on with something else of it is told.
void add_effect_rows(const ManifestEntry& effects, std::vector<TextRow>& rows) {
  if (!effects.same_bits.empty()) rows.push_back({"same bits", "with any other " + join(effects.same_bits)});
  if (effects.rounding) rows.push_back({"same numbers", "but for rounding, without it or with other options of it"});
}

}  // namespace

std::string inspect_table(const Registry& registry, const std::string& kind) {
  std::vector<TextRow> rows{{"kind", "name", "version", "from", "summary"}};
  std::string others;
  bool any_default = false;
  for (const KindRule& rule : kind_rules()) {
    if (!kind.empty() && rule.kind != kind) continue;
    const size_t before = rows.size();
    for (const Found& found : registry.found()) {
      if (found.entry.kind != rule.kind || found.state != Found::usable) continue;
      any_default |= found.entry.is_default;
      rows.push_back({rule.kind, found.entry.name + (found.entry.is_default ? " *" : ""), found.file->manifest.version,
                      found.file->origin, found.entry.summary});
    }
    if (rows.size() == before)
      rows.push_back({rule.kind, "-", "", "", concat("none installed (", kind_summary(rule.kind), ")")});
  }
  for (const Found& found : registry.found()) {
    if (found.state == Found::usable || (!kind.empty() && found.entry.kind != kind)) continue;
    others += indented(found.state == Found::refused
                           ? found.reason
                           : concat(found.entry.id(), " of ", found.file->shown(), " is ", found.reason),
                       "  ");
  }
  std::string text = aligned(rows, "");
  if (any_default) text += "* taken when a config names none of its kind\n";
  return others.empty() ? text : text + "\nnot used\n" + others;
}

std::string inspect_entry(const Registry& registry, const Found& found) {
  const ManifestEntry& e = found.entry;
  std::vector<TextRow> rows{{"version", found.file->manifest.version + ", " + found.file->manifest.licence},
                            {"file", found.file->shown()},
                            {"build-id", found.file->build_id.empty() ? "none" : found.file->build_id},
                            {"sha256", sha256(read_bytes(found.file->path))},
                            {"section", section_text(e)}};
  for (const KindRule& rule : kind_rules())
    if (rule.kind == e.kind && !rule.outside_of.empty())
      rows.push_back({"place", concat("\"", kOutsideOf, "\": KIND in its section puts it directly outside of ",
                                      join(rule.outside_of, " or "))});
  if (!e.paper.empty()) rows.push_back({"paper", e.paper});
  if (!e.types.empty()) rows.push_back({"types", join(e.types)});
  if (!e.device.empty()) rows.push_back({"device", e.device + " only"});
  if (e.is_default) rows.push_back({"default", "taken when a config names none of its kind"});
  add_effect_rows(e, rows);
  add_declared_rows(declared_by(registry, found), rows);
  return e.id() + "  " + e.summary + "\n" + aligned(rows, "  ") + options_text(registry.options(e.kind, e.name));
}

std::string inspect_file_text(const PluginFile& file) {
  if (file.fields.empty()) return file.problem + "\n";
  std::string text = file.path + "\n";
  std::vector<TextRow> rows{
      {"library", file.manifest.library + " " + file.manifest.version + ", " + file.manifest.licence},
      {"build-id", file.build_id.empty() ? "none" : file.build_id}};
  for (const ManifestEntry& e : file.manifest.entries) rows.push_back({"offers", e.id() + "  " + e.summary});
  text += aligned(rows, "  ") + field_lines(file.fields, true).substr(1) + "\n";
  return text + (file.problem.empty() ? "may be used\n" : file.problem + "\n");
}

}  // namespace drivetrain
