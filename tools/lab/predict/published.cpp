#include "predict/published.h"

#include <algorithm>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/suggest.h"
#include "config_files/load.h"

namespace drivetrain {
namespace {

constexpr const char* kTables = "/tables.json";
constexpr const char* kSystems = "/systems.json";

const Value& needed(const Value& value, const std::string& key, const char* what) {
  if (const Value* const found = value.find(key)) return *found;
  throw fail(ErrorCode::config, value.where.text(), ": ", what, " has no \"", shown(key), "\"");
}

using Quantities = std::map<std::string, Value>;

// A model's sizes by the names that the file of tables has for them.
Quantities model_quantities(const std::string& label, const Value& tables, const Value& systems) {
  const Value* const renamed = needed(systems, "models", "the file of systems").find(label);
  const std::string name = renamed ? renamed->as_string() : label;
  Quantities all;
  for (const Value::Member& m :
       needed(needed(tables, "models", "the file of tables"), name, "the list of models").members())
    all[m.key] = m.value;
  return all;
}

// A quantity of a row: under the name that its system's tables have for it, in the row, in what the table says of all
// rows, or a constant of the system.
class RowReader {
 public:
  RowReader(const Value& row, const Value& table, const Profile& system) : row_(row), table_(table), system_(system) {}

  const Value* find(const std::string& quantity) const {
    const Value* const column = system_.columns.find(quantity);
    if (column) {
      const std::string& name = column->as_string();
      if (const Value* const own = row_.find(name)) return own;
      if (const Value* const all = table_.find(name)) return all;
      const Value* const conditions = table_.find("conditions");
      if (const Value* const all = conditions ? conditions->find(name) : nullptr; all && !is_words(*all)) return all;
    }
    return system_.constants.find(quantity);
  }
  int64_t whole(const std::string& quantity) const { return get(quantity).as_int(); }
  bool yes(const std::string& quantity) const { return get(quantity).as_bool(); }
  std::string text(const std::string& quantity) const { return get(quantity).as_string(); }
  std::optional<double> printed(const std::string& quantity) const {
    const Value* const value = find(quantity);
    return value ? std::optional<double>(value->as_double()) : std::nullopt;
  }

 private:
  static bool is_words(const Value& value) { return value.is_string(); }
  const Value& get(const std::string& quantity) const {
    if (const Value* const value = find(quantity)) return *value;
    const Value* const column = system_.columns.find(quantity);
    throw fail(ErrorCode::config, row_.where.text(), ": the row has no ", column ? column->as_string() : quantity, " (",
               quantity, "), and system ", system_.name,
               " has no constant for it\n   add it to the row, or to "
               "\"constants\" in systems.json");
  }
  const Value &row_, &table_;
  const Profile& system_;
};

std::string label_of(const PublishedRow& row, const std::string& model) {
  std::string text = concat(row.ranks, row.ranks == 1 ? " rank" : " ranks");
  const auto add = [&](bool differs, const std::string& words) { text += differs ? ", " + words : ""; };
  add(row.tensor > 1, concat("tensor ", row.tensor));
  add(row.stages > 1, concat("stages ", row.stages));
  add(row.context > 1, concat("context ", row.context));
  add(row.shard_values, "values sharded");
  add(!row.shard_values, row.shard_ranks < 0 ? std::string("state over all") : concat("state over ", row.shard_ranks));
  add(row.recompute, "recompute");
  return concat(model, ", ", text, ", ", row.micro_batch, "x", row.micro_batches, " of ", row.seq_length);
}

void check(const PublishedRow& row, const Value& where) {
  const auto positive = [&](int64_t n) { return n >= 1; };
  const bool good = positive(row.ranks) && positive(row.tensor) && positive(row.stages) && positive(row.context) &&
                    positive(row.micro_batch) && positive(row.micro_batches) && positive(row.seq_length);
  if (!good) throw fail(ErrorCode::config, where.where.text(), ": every number of ", row.label, " is 1 or more");
  if (row.ranks % (row.tensor * row.stages) != 0)
    throw fail(ErrorCode::config, where.where.text(), ": ", row.ranks, " ranks are not shared evenly by tensor ",
               row.tensor, " x stages ", row.stages);
}

// Whole layers for each stage, the last ones one more where they do not divide; unit 0 is the embedding.
Value first_units(int64_t layers, int64_t stages) {
  Value units = Value::array();
  int64_t first = 1;
  for (int64_t stage = 0; stage + 1 < stages; ++stage) {
    first += layers / stages + (stage >= stages - layers % stages ? 1 : 0);
    units.items().push_back(first);
  }
  return units;
}

// What a config is written with. What a row does not have, such as stages where there is one, is not among them.
Quantities quantities_of(const PublishedRow& row, Quantities model) {
  Quantities all = std::move(model);
  const auto several = [&](const char* name, int64_t value) {
    if (value > 1) all[name] = value;
  };
  all["micro_batch"] = row.micro_batch, all["seq_length"] = row.seq_length;
  all["batch"] = row.micro_batch * row.micro_batches * row.replicas() / row.context;
  several("tensor", row.tensor), several("stages", row.stages), several("context", row.context);
  if (row.stages > 1 && all.contains("layers")) all["first_units"] = first_units(all["layers"].as_int(), row.stages);
  all["recompute"] = row.recompute, all["shard_values"] = row.shard_values;
  if (!row.shard_values && row.shard_ranks > 0) all["owners"] = std::min(row.shard_ranks, row.replicas());
  return all;
}

// KEY=VALUE with each ${quantity} replaced.
std::string filled(std::string text, const Quantities& all, const Value& row) {
  for (size_t begin = text.find("${"); begin != std::string::npos; begin = text.find("${")) {
    const size_t end = text.find('}', begin);
    const std::string name = text.substr(begin + 2, end - begin - 2);
    const auto found = all.find(name);
    if (found == all.end())
      throw fail(ErrorCode::config, row.where.text(), ": neither the row nor its model has ", shown(name),
                 "\n   add it, or leave out ", shown(text), " under \"config\" in systems.json");
    text.replace(begin, end + 1 - begin, found->second.to_json());
  }
  return text;
}

// What a user would write to train as the row says, by the lines of systems.json.
Value config_of(const Value& parts, const Quantities& all, const Value& row) {
  Problems problems;
  Value config = Value::object();
  int number = 0;
  for (const Value& part : parts.items()) {
    const auto holds = [&](const char* key, bool otherwise) {
      const Value* const name = part.find(key);
      if (!name) return otherwise;
      const auto found = all.find(name->as_string());
      return found != all.end() && (!found->second.is_bool() || found->second.as_bool());
    };
    if (!holds("when", true) || holds("unless", false)) continue;
    for (const Value& set : needed(part, "set", "a part of a config").items())
      apply_set(config, filled(set.as_string(), all, row), ++number, problems);
  }
  problems.throw_if_any();
  return config;
}

PublishedRow row_of(const RowReader& read, const Value& value, const Value& tables, const Value& systems) {
  PublishedRow row;
  const std::string model = read.text("model");
  row.ranks = read.whole("ranks"), row.tensor = read.whole("tensor"), row.stages = read.whole("stages");
  row.context = read.whole("context"), row.shard_ranks = read.whole("shard_ranks");
  row.shard_values = read.yes("shard_values"), row.recompute = read.yes("recompute");
  row.micro_batch = read.whole("micro_batch"), row.micro_batches = read.whole("micro_batches");
  row.seq_length = read.whole("seq_length");
  if (const Value* const held = value.find("held_back")) row.held_back = held->as_bool();
  row.tgs = read.printed("tgs"), row.gib = read.printed("gib");
  row.label = label_of(row, model);
  check(row, value);
  row.config = config_of(needed(systems, "config", "the file of systems"),
                         quantities_of(row, model_quantities(model, tables, systems)), value);
  return row;
}

const Value* table_named(const std::string& name, const Value& tables) {
  for (const Value& table : needed(tables, "tables", "the file of tables").items())
    if (needed(table, "id", "a table").as_string() == name) return &table;
  return nullptr;
}

std::vector<std::string> names_of(const Value& tables, const Value& systems) {
  std::vector<std::string> names;
  const Value& known = needed(systems, "tables", "the file of systems");
  for (const Value& table : needed(tables, "tables", "the file of tables").items()) {
    const std::string& id = needed(table, "id", "a table").as_string();
    if (known.find(id) && table.find("rows")) names.push_back(id);
  }
  return names;
}

}  // namespace

std::vector<std::string> published_names(const std::string& folder) {
  return names_of(read_json_file(folder + kTables), read_json_file(folder + kSystems));
}

PublishedTable read_published(const std::string& name, const std::string& folder) {
  const Value tables = read_json_file(folder + kTables), systems = read_json_file(folder + kSystems);
  const std::vector<std::string> names = names_of(tables, systems);
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw fail(ErrorCode::config, "there is no table ", shown(name), " with rows and a system in ", folder, kTables,
               suggestion(name, names));
  PublishedTable table;
  table.id = name;
  table.system = read_profile(systems.find("tables")->find(name)->as_string(), folder);
  const Value& source = *table_named(name, tables);
  for (const Value& row : source.find("rows")->items()) {
    table.rows.push_back(row_of(RowReader(row, source, table.system), row, tables, systems));
    const bool other = table.rows.back().shard_values && !table.system.shared_values.empty();
    table.rows.back().profile = other ? table.system.shared_values : table.system.name;
  }
  return table;
}

}  // namespace drivetrain
