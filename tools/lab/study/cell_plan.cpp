#include "study/cell_plan.h"

#include <algorithm>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "study/slots.h"

namespace drivetrain::study {
namespace {

const Value* find(const Value& value, std::initializer_list<const char*> path) {
  const Value* at = &value;
  for (const char* key : path)
    if (!(at = at->find(key))) return nullptr;
  return at;
}

// Sequences per step, so that tokens per rank, or of all ranks, are those of the reference.
int64_t kept_batch(Keep keep, const CellPlan& reference, int64_t world, int64_t seq_length) {
  const int64_t tokens = reference.batch("train_batch_size") * reference.seq_length();
  const int64_t all = keep == Keep::global_batch ? tokens : tokens * world;
  const int64_t shared = keep == Keep::global_batch ? 1 : reference.world_size;
  return all % (shared * seq_length) == 0 ? all / (shared * seq_length) : 0;
}

// Not "the heads do not divide" but "there is no such key", or one that takes no such value.
bool is_about_the_key(const std::string& refusal) {
  if (refusal.find("--set #") == std::string::npos) return false;
  return refusal.find("is not an option of") != std::string::npos ||
         refusal.find("is not a setting or a section") != std::string::npos ||
         refusal.find(": expected ") != std::string::npos;
}

std::string level_place(const Factor& factor, const Level& level) {
  return concat("factor \"", shown(factor.name), "\", level \"", shown(level.name), "\"");
}

// What the program calls "--set #3" stands in the study's file somewhere.
std::string with_places(std::string refusal, const std::vector<std::string>& places) {
  const std::string begin = "--set #";
  for (size_t at = 0; (at = refusal.find(begin, at)) != std::string::npos;) {
    const size_t from = at + begin.size();
    const size_t end = std::min(refusal.find_first_not_of("0123456789", from), refusal.size());
    const size_t number = end > from && end - from < 6 ? std::stoul(refusal.substr(from, end - from)) : 0;
    if (number == 0 || number > places.size())
      at = end;
    else
      refusal.replace(at, end - at, places[number - 1]), at += places[number - 1].size();
  }
  return refusal;
}

}  // namespace

double CellPlan::planned_bytes() const {
  const Value* const bytes = find(plan, {"memory", "on_device", "bytes"});
  return bytes && bytes->is_number() ? bytes->as_double() : 0;
}

int64_t CellPlan::batch(const char* key) const {
  const Value* const value = find(plan, {"batch", key});
  return value && value->is_number() ? value->as_int() : 0;
}

int64_t CellPlan::seq_length() const {
  const Value* const value = find(plan, {"data", "seq_length"});
  return value && value->is_number() ? value->as_int() : 0;
}

int64_t CellPlan::steps() const {
  const Value* const value = find(plan, {"run", "train_steps"});
  return value && value->is_number() ? value->as_int() : 0;
}

// A cell has each key once (design.cpp).
std::string Planner::place_of(const Cell& cell, const std::string& key) const {
  for (size_t f = 0; f < study_.factors.size(); ++f) {
    const int own = f < cell.levels.size() ? cell.levels[f] : -1;
    const Level& level = study_.factors[f].levels[static_cast<size_t>(own >= 0 ? own : study_.reference[f])];
    for (const Change& change : level.changes)
      if (change.key == key) return level_place(study_.factors[f], level);
  }
  return concat("row ", shown(cell.id));
}

// On hosts a run has as many ranks as these have slots.
void Planner::set_ranks(CellPlan& plan) const {
  plan.names_hosts = !plan.hosts.empty();
  if (plan.hosts.empty() && study_.dispatch.is_of_hosts()) plan.hosts = study_.dispatch.listed.front().hosts;
  const int64_t ranks =
      plan.hosts.empty() ? std::max<int64_t>(plan.world_size, 1) : ranks_of_hostfile(plan.hosts, study_.path);
  if (!plan.hosts.empty() && plan.world_size > 0 && plan.world_size != ranks)
    plan.refusal =
        concat("\"world_size\" is ", plan.world_size, ", and ", shown(plan.hosts), " has ", ranks,
               ranks == 1 ? " slot" : " slots",
               "\n   a run on hosts has a rank for each slot: leave \"world_size\" out, change the hostfile, or "
               "leave such cells out by \"constraints\"");
  plan.world_size = ranks;
}

CellPlan Planner::launch_of(const Cell& cell) const {
  CellPlan plan;
  plan.world_size = study_.world_size, plan.hosts = study_.hosts, plan.environment = study_.environment;
  const auto add = [&](const Change& change, const std::string& place) {
    const std::string value = change.value ? change.value->to_json() : "null";
    const bool text = change.value && change.value->is_string();
    if (change.key == "world_size")
      plan.world_size = change.value->as_int();
    else if (change.key == "hosts")
      plan.hosts = change.value ? beside(study_.path, change.value->as_string()) : "";
    else if (change.key.starts_with("environment.") && change.value)
      plan.environment.push_back(change.key.substr(12) + "=" + (text ? change.value->as_string() : value));
    else if (!change.key.starts_with("environment."))
      plan.sets.push_back(change.key + "=" + value), plan.places.push_back(place);
  };
  for (const Change& change : study_.set) add(change, "\"set\"");
  for (const Change& change : cell.changes) add(change, place_of(cell, change.key));
  set_ranks(plan);
  return plan;
}

// The micro-batch stays too, unless the cell decides over it; accumulation follows.
void Planner::keep(const Cell& cell, const CellPlan& reference, CellPlan& plan) const {
  int64_t seq_length = reference.seq_length();
  bool has_micro = false, has_accumulation = false;
  for (const Change& change : cell.changes) {
    if (change.key == "train_batch_size")
      throw fail(ErrorCode::config, study_.path, ": \"keep\" and cell ", shown(cell.id),
                 " both decide over train_batch_size\n   leave \"keep\" out, or that key");
    has_micro |= change.key == "train_micro_batch_size_per_gpu";
    has_accumulation |= change.key == "gradient_accumulation_steps";
    if (change.key.ends_with("seq_length") && change.value && change.value->is_number())
      seq_length = std::max<int64_t>(change.value->as_int(), 1);
  }
  const int64_t batch = kept_batch(study_.keep, reference, plan.world_size, seq_length);
  if (batch == 0)
    plan.refusal = concat("\"keep\": the reference's ", reference.batch("train_batch_size"), " sequences of ",
                          reference.seq_length(), " tokens on ", reference.world_size, " ranks are no whole number of ",
                          "sequences of ", seq_length, " on ", plan.world_size);
  plan.sets.push_back(concat("train_batch_size=", batch));
  if (!has_accumulation) plan.sets.push_back("gradient_accumulation_steps=null");
  if (!has_micro)
    plan.sets.push_back(has_accumulation
                            ? "train_micro_batch_size_per_gpu=null"
                            : concat("train_micro_batch_size_per_gpu=", reference.batch("micro_batch_size")));
  plan.places.resize(plan.sets.size(), "\"keep\"");
}

void Planner::ask(CellPlan& plan) const {
  ProcessStart start;
  start.environment = plan.environment;
  for (const std::string& one :
       {concat("WORLD_SIZE=", plan.world_size), std::string("RANK=0"), std::string("LOCAL_RANK=0"),
        std::string("MASTER_ADDR=127.0.0.1"), std::string("MASTER_PORT=1")})
    start.environment.push_back(one);
  start.command = {"drivetrain", "train", base_, "--plan", "--json"};
  for (const std::string& set : plan.sets) start.command.insert(start.command.end(), {"--set", set});
  plan.plan = questions_.answer(start, plan.refusal).value_or(Value());
  plan.wrong_key = is_about_the_key(plan.refusal);
  plan.refusal = with_places(plan.refusal, plan.places);
  if (const Value* const config = plan.plan.find("config")) {
    plan.resolved = *config;
    plan.resolved.erase("output_dir");
    plan.plan.erase("config");
  }
  plan.config = hash_of(concat(plan.resolved.to_json(), launch_value(plan).to_json()));
}

CellPlan Planner::plan_one(const Cell& cell, const CellPlan* reference) const {
  CellPlan plan = launch_of(cell);
  if (reference && study_.keep != Keep::nothing) keep(cell, *reference, plan);
  if (plan.refusal.empty()) ask(plan);
  return plan;
}

std::vector<CellPlan> Planner::plan(const std::vector<Cell>& cells) const {
  std::vector<CellPlan> plans(cells.size());
  plans.front() = plan_one(cells.front(), nullptr);
  if (!plans.front().refusal.empty()) {
    check_levels({cells.front()}, {plans.front()});
    throw fail(ErrorCode::config, study_.path, ": the reference cell, ", shown(cells.front().id),
               ", is refused: ", plans.front().refusal,
               "\n   every other cell is compared with it: choose a \"reference\" that runs");
  }
  plan_others(cells, plans);
  check_levels(cells, plans);
  return plans;
}

void Planner::plan_others(const std::vector<Cell>& cells, std::vector<CellPlan>& plans) const {
  ask_side_by_side(1, cells.size(),
                   [&](size_t i) { plans[i] = cells[i].is_noise ? plans.front() : plan_one(cells[i], plans.data()); });
}

void Planner::check_levels(const std::vector<Cell>& cells, const std::vector<CellPlan>& plans) const {
  for (size_t f = 0; f < study_.factors.size(); ++f)
    for (size_t level = 0; level < study_.factors[f].levels.size(); ++level) {
      const CellPlan* wrong = nullptr;
      bool any_gets_on = false;
      for (size_t i = 0; i < plans.size(); ++i) {
        if (cells[i].levels[f] != static_cast<int>(level)) continue;
        const bool about_key = plans[i].wrong_key;
        any_gets_on |= !about_key;
        const std::string place = level_place(study_.factors[f], study_.factors[f].levels[level]);
        if (about_key && plans[i].refusal.find(place) != std::string::npos) wrong = &plans[i];
      }
      if (wrong && !any_gets_on) throw fail(ErrorCode::config, study_.path, ": ", wrong->refusal);
    }
}

Value launch_value(const CellPlan& plan) {
  const auto list = [](const std::vector<std::string>& texts) {
    Value values = Value::array();
    for (const std::string& one : texts) values.items().push_back(one);
    return values;
  };
  Value launch = Value::object();
  launch.set("world_size", plan.world_size), launch.set("hosts", plan.hosts);
  launch.set("environment", list(plan.environment)), launch.set("sets", list(plan.sets));
  return launch;
}

CellPlan plan_of_launch(const Value& cell_line) {
  CellPlan plan;
  const Value *const launch = cell_line.find("launch"), *const refusal = cell_line.find("refusal");
  const Value* const config = cell_line.find("config");
  if (!launch || !refusal || !config) throw fail(ErrorCode::io, "the ledger has a cell without its launch");
  plan.refusal = refusal->as_string(), plan.config = config->as_string();
  plan.world_size = launch->find("world_size")->as_int(), plan.hosts = launch->find("hosts")->as_string();
  for (const Value& one : launch->find("environment")->items()) plan.environment.push_back(one.as_string());
  for (const Value& one : launch->find("sets")->items()) plan.sets.push_back(one.as_string());
  return plan;
}

std::vector<std::string> launch_command(const CellPlan& plan, const std::string& program, const std::string& base,
                                        const std::string& output) {
  std::vector<std::string> command = {program, "launch"};
  if (!plan.hosts.empty())
    command.insert(command.end(), {"--hostfile", plan.hosts});
  else
    command.insert(command.end(), {"-n", std::to_string(plan.world_size)});
  command.push_back(base);
  for (const std::string& set : plan.sets) command.insert(command.end(), {"--set", set});
  if (!output.empty()) command.insert(command.end(), {"--set", "output_dir=" + Value(output).to_json()});
  return command;
}

std::string reproduce_line(const CellPlan& plan, const std::string& base, const std::string& output) {
  std::string line;
  for (const std::string& entry : plan.environment) line += entry + " ";
  for (const std::string& word : launch_command(plan, "drivetrain", base, output)) {
    const bool plain =
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:@%,") ==
        std::string::npos;
    std::string quoted = plain ? word : "'";
    if (!plain) {
      for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
      quoted += "'";
    }
    line += (line.empty() || line.back() == ' ' ? "" : " ") + quoted;
  }
  return line;
}

}  // namespace drivetrain::study
