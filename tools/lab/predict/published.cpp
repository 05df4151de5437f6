#include "predict/published.h"

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/suggest.h"

namespace drivetrain {
namespace {

constexpr const char* kTables = "/tables.json";
constexpr const char* kSystems = "/systems.json";

const Value& needed(const Value& value, const std::string& key, const char* what) {
  if (const Value* const found = value.find(key)) return *found;
  throw fail(ErrorCode::config, value.where.text(), ": ", what, " has no \"", shown(key), "\"");
}

double number(const Value& value, const std::string& key, const char* what) {
  return needed(value, key, what).as_double();
}

double number_or(const Value& value, const std::string& key, double otherwise) {
  const Value* const found = value.find(key);
  return found ? found->as_double() : otherwise;
}

ModelShape shape_of(const std::string& label, const Value& tables, const Value& systems) {
  const Value* const renamed = needed(systems, "models", "the file of systems").find(label);
  const std::string name = renamed ? renamed->as_string() : label;
  const Value& all = needed(tables, "models", "the file of tables");
  const Value& m = needed(all, name, "the list of models");
  ModelShape shape;
  shape.name = name;
  shape.layers = number(m, "layers", "a model"), shape.hidden = number(m, "hidden", "a model");
  shape.heads = number(m, "heads", "a model"), shape.groups = number_or(m, "kv_heads", shape.heads);
  shape.head_dim = number_or(m, "head_dim", shape.hidden / shape.heads);
  shape.ffn = number(m, "intermediate", "a model"), shape.vocab = number(m, "vocab", "a model");
  shape.parameters = number(m, "params", "a model");
  if (const Value* const gated = m.find("gated_mlp")) shape.gated = gated->as_bool();
  return shape;
}

TrainingSystem system_of(const std::string& name, const Value& systems) {
  const Value& s = needed(needed(systems, "systems", "the file of systems"), name, "the list of systems");
  TrainingSystem system;
  system.name = name;
  system.hardware = needed(s, "hardware", "a system").as_string();
  system.dtype = needed(s, "dtype", "a system").as_string();
  for (const Value& line : needed(s, "assumptions", "a system").items()) system.assumptions.push_back(line.as_string());
  system.columns = needed(s, "columns", "a system"), system.constants = needed(s, "constants", "a system");
  if (const Value* const t = s.find("time")) {
    system.has_time = true;
    system.time = {number(*t, "step_s", "time"), number(*t, "owner_s", "time"), number(*t, "update_bytes", "time"),
                   needed(*t, "overlaps", "time").as_bool()};
  }
  if (const Value* const m = s.find("memory")) {
    const auto get = [&](const char* key) { return number(*m, key, "memory"); };
    system.has_memory = true;
    system.memory = {get("overhead_gib"),        get("whole_bytes"), get("shared_bytes"),
                     get("shared_values_bytes"), get("layer_bytes"), get("kept_layer_bytes"),
                     get("input_bytes"),         get("logit_bytes"), get("limit_share")};
  }
  return system;
}

// A quantity of a row: under the name that its system's tables have for it, in the row, in what the table says of all
// rows, or a constant of the system.
class RowReader {
 public:
  RowReader(const Value& row, const Value& table, const TrainingSystem& system)
      : row_(row), table_(table), system_(system) {}

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
  const TrainingSystem& system_;
};

std::string label_of(const PublishedRow& row) {
  std::string text = concat(row.ranks, row.ranks == 1 ? " rank" : " ranks");
  const auto add = [&](bool differs, const std::string& words) { text += differs ? ", " + words : ""; };
  add(row.tensor > 1, concat("tensor ", row.tensor));
  add(row.stages > 1, concat("stages ", row.stages));
  add(row.context > 1, concat("context ", row.context));
  add(row.shard_values, "values sharded");
  add(!row.shard_values, row.shard_ranks < 0 ? std::string("state over all") : concat("state over ", row.shard_ranks));
  add(row.recompute, "recompute");
  return concat(row.model.name, ", ", text, ", ", row.micro_batch, "x", row.micro_batches, " of ", row.seq_length);
}

void check(const PublishedRow& row, const Value& where) {
  const auto positive = [&](int64_t n) { return n >= 1; };
  const bool good = positive(row.ranks) && positive(row.tensor) && positive(row.stages) && positive(row.context) &&
                    positive(row.micro_batch) && positive(row.micro_batches) && positive(row.seq_length);
  if (!good) throw fail(ErrorCode::config, where.where.text(), ": every number of ", label_of(row), " is 1 or more");
  if (row.ranks % (row.tensor * row.stages) != 0)
    throw fail(ErrorCode::config, where.where.text(), ": ", row.ranks, " ranks are not shared evenly by tensor ",
               row.tensor, " x stages ", row.stages);
}

PublishedRow row_of(const RowReader& read, const Value& value, const Value& tables, const Value& systems) {
  PublishedRow row;
  row.model = shape_of(read.text("model"), tables, systems);
  row.ranks = read.whole("ranks"), row.tensor = read.whole("tensor"), row.stages = read.whole("stages");
  row.context = read.whole("context"), row.shard_ranks = read.whole("shard_ranks");
  row.shard_values = read.yes("shard_values"), row.recompute = read.yes("recompute");
  row.micro_batch = read.whole("micro_batch"), row.micro_batches = read.whole("micro_batches");
  row.seq_length = read.whole("seq_length");
  row.tgs = read.printed("tgs"), row.gib = read.printed("gib");
  row.label = label_of(row);
  check(row, value);
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

PublishedTable read_published(const std::string& name, const std::string& folder, const std::string& hardware) {
  const Value tables = read_json_file(folder + kTables), systems = read_json_file(folder + kSystems);
  const std::vector<std::string> names = names_of(tables, systems);
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw fail(ErrorCode::config, "there is no table ", shown(name), " with rows and a system in ", folder, kTables,
               suggestion(name, names));
  PublishedTable table;
  table.id = name;
  table.system = system_of(systems.find("tables")->find(name)->as_string(), systems);
  table.hardware = read_hardware(table.system.hardware, hardware);
  const Value& source = *table_named(name, tables);
  for (const Value& row : source.find("rows")->items())
    table.rows.push_back(row_of(RowReader(row, source, table.system), row, tables, systems));
  return table;
}

}  // namespace drivetrain
