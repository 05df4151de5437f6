#include "generate/eval_set.h"

#include <filesystem>

#include <drivetrain/evaluation.h>
#include <drivetrain/services.h>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/suggest.h"
#include "generate/text_tokens.h"
#include "log/log_console.h"
#include "rendezvous/rendezvous.h"
#include "shared/open_tokenizer.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

bool is_file(const std::string& path) {
  std::error_code unknown;
  return fs::is_regular_file(path, unknown);
}

const Value* sets_of(const Value& config) {
  const Value* const section = config.find("eval");
  const Value* const sets = section ? section->find("sets") : nullptr;
  return sets && sets->is_object() ? sets : nullptr;
}

// A figure's name has the set's in it.
std::string name_from(const std::string& file) {
  std::string name = fs::path(file).stem().string();
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.') c = '_';
  return name.empty() ? "set" : name;
}

// What the installed evaluations make of a file; they have to be asked, as only they know.
Value entry_for(const std::string& file, const Registry& registry) {
  const std::shared_ptr<Log> log = make_console_log({.level = LogLevel::error});
  const std::shared_ptr<Store> store = make_local_store();
  const Services services{*log, *store};
  std::vector<std::string> takers;
  Value entry;
  for (const std::string& name : registry.names(Evaluation::kKind)) {
    const Value params = registry.create<Evaluation>(name, nullptr, services)->options_for(file);
    if (params.is_null()) continue;
    takers.push_back(name);
    entry = Value::Object{{"type", name}, {"params", params}};
  }
  if (takers.size() == 1) return entry;
  throw fail(ErrorCode::config, one_line(file), ": ", takers.empty() ? "no installed evaluation takes" : "several take",
             " such a file", takers.empty() ? "" : ": " + join(takers),
             "\n   say which: '{\"type\": NAME, \"params\": {...}}', with one of ",
             join(registry.names(Evaluation::kKind)));
}

// {"type", "params"} alone, or under the set's name.
EvalSet set_in(const Value& value, const std::string& name) {
  if (value.is_object() && !value.find("type") && value.members().size() == 1)
    return {value.members()[0].key, value.members()[0].value};
  return {name, value};
}

EvalSet read_set(const std::string& folder, const std::string& wanted, const Value& config, const Registry& registry) {
  if (wanted.starts_with("{")) return set_in(parse_json(wanted, "SET"), "set");
  std::vector<std::string> names;
  if (const Value* const sets = sets_of(config)) {
    if (const Value* const entry = sets->find(wanted)) return {wanted, *entry};
    for (const Value::Member& m : sets->members()) names.push_back(m.key);
  }
  if (is_file(wanted) && wanted.ends_with(".json")) return set_in(read_json_file(wanted), name_from(wanted));
  if (is_file(wanted)) return {name_from(wanted), entry_for(wanted, registry)};
  throw fail(ErrorCode::config, one_line(wanted), " is no set of ", one_line(folder), ", and no file",
             did_you_mean(wanted, names),
             names.empty() ? concat("\n   the folder has no section \"eval\" with sets in resolved.json")
                           : "\n   its sets are " + join(names),
             "; a set may also be '{\"type\": NAME, \"params\": {...}}', a .json file with that, or a file of data");
}

const Value* option_of(const EvalSet& set, const std::string& name) {
  const Value* const params = set.entry.find("params");
  const Value* const option = params ? params->find(name) : nullptr;
  return option && !option->is_null() ? option : nullptr;
}

std::string type_of(const EvalSet& set) {
  const Value* const type = set.entry.is_string() ? &set.entry : set.entry.find("type");
  return type && type->is_string() ? type->as_string() : std::string();
}

// A plugin without files has a name only.
void name_tokenizer(EvalSet& set, const std::string& place, const TokenizerReaders& readers) {
  const std::string id = readers.open(place).id;
  std::error_code unknown;
  set.set_option("tokenizer", id.substr(id.find('/') + 1));
  set.set_option("tokenizer_folder", fs::exists(place, unknown) ? fs::absolute(place).string() : std::string());
}

}  // namespace

void add_tokenizer(EvalSet& set, const std::string& folder, const std::string& named, const Registry& registry) {
  const std::string type = type_of(set);
  if (type.empty()) return;  // told where it is chosen
  if (!registry.options(Evaluation::kKind, type).find("tokenizer")) {
    if (named.empty()) return;
    throw fail(ErrorCode::config, "--tokenizer ", named, ": evaluation/", type, " reads no texts\n   leave it out");
  }
  const std::shared_ptr<Log> log = make_console_log({.level = LogLevel::error});
  const std::shared_ptr<Store> store = make_local_store();
  const Services services{*log, *store};
  const TokenizerReaders readers(registry, services);
  if (!named.empty()) return name_tokenizer(set, named, readers);
  if (option_of(set, "tokenizer")) return;
  const Value config = run_config(folder);
  if (const Value* section = tokenizer_section(config)) return set.set_option("tokenizer", *section);
  for (const fs::path& place : {fs::path(folder), fs::path(folder) / "final"})
    if (readers.recognized(place.string())) return name_tokenizer(set, place.string(), readers);
}

void EvalSet::set_option(const std::string& key, Value value) {
  if (!entry.is_object()) entry = Value::Object{{"type", entry}};
  const Value* const params = entry.find("params");
  Value changed = params && params->is_object() ? *params : Value::object();
  changed.set(key, std::move(value));
  entry.set("params", std::move(changed));
}

EvalSet find_eval_set(const std::string& folder, const std::string& wanted, const Registry& registry) {
  const Value config = run_config(folder);
  EvalSet set = read_set(folder, wanted, config, registry);
  const Value* const facts = config.find("_resolved");
  const Value* const length = facts ? facts->find("seq_length") : nullptr;
  if (length && length->is_int() && length->as_int() > 0) set.seq_length = length->as_int();
  if (const Value* const seed = config.find("seed"); seed && seed->is_int()) set.seed = seed->as_int();
  return set;
}

ChosenPlugin choose_eval_set(const EvalSet& set, const Registry& registry) {
  Problems problems;
  Value sets = Value::object(), eval = Value::object(), config = Value::object();
  sets.set(set.name, set.entry), eval.set("sets", std::move(sets)), config.set("eval", std::move(eval));
  const std::vector<ChosenPlugin> chosen = choose_eval_sets(config, registry, problems);
  problems.throw_if_any();
  return chosen.at(0);
}

}  // namespace drivetrain
