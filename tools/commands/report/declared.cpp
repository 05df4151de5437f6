#include "report/declared.h"

#include <drivetrain/attention.h>
#include <drivetrain/communicator.h>
#include <drivetrain/plan_record.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/dtype_name.h>
#include <drivetrain/toolkit/text.h>

#include "plan/plugin_maker.h"
#include "plugin_calls/plugin_call.h"
#include "rendezvous/rendezvous.h"

namespace drivetrain {
namespace {

struct NoLog : Log {
  void write(LogLevel, const std::string&) override {}
  void progress(const std::string&) override {}
};

std::vector<Declared::Line> abilities_of(const Attention& attention) {
  const AttentionAbilities can = attention.abilities();
  std::vector<std::string> dtypes;
  for (const at::ScalarType type : can.dtypes) dtypes.push_back(dtype_name(type));
  const auto yes = [](bool is) { return std::string(is ? "yes" : "no"); };
  return {{"head_sizes", can.head_sizes.empty() ? "any" : join(can.head_sizes)},
          {"dtypes", join(dtypes)},
          {"gqa", yes(can.gqa)},
          {"varlen", yes(can.varlen)},
          {"window", yes(can.window)},
          {"q_offset", yes(can.q_offset)},
          {"dropout", yes(can.dropout)},
          {"non_causal", yes(can.non_causal)},
          {"returns_lse", yes(can.returns_lse)},
          {"deterministic", yes(can.deterministic)},
          {"partial_keys", yes(can.partial_keys)},
          {"partial_heads", yes(can.partial_heads)}};
}

void ask(const Registry& registry, const Found& found, Declared& declared) {
  NoLog log;
  const auto store = make_local_store();
  Services services{log, *store};
  const auto maker = make_plugin_maker(registry, services);
  services.plugins = maker.get();
  const std::string id = found.entry.id();
  const auto plugin = registry.create_plugin(found.entry.kind, found.entry.name, nullptr, services);
  if (const auto attention = std::dynamic_pointer_cast<Attention>(plugin))
    declared.abilities = plugin_call({id, "abilities"}, [&] { return abilities_of(*attention); });
  PlanRecord context(ModelFacts{}, RunFacts{});
  context.set_plugin(id);
  plugin_call({id, "plan"}, [&] { plugin->plan(context); });
  for (const PlanRecord::Note& offer : context.offers()) declared.offers.push_back(offer.text);
  for (const PlanRecord::Need& need : context.needs()) declared.needs.emplace_back(need.ability, need.why);
}

}  // namespace

Declared declared_by(const Registry& registry, const Found& found) {
  Declared declared;
  if (found.entry.kind == Communicator::kKind) {  // making one begins to look for other ranks
    declared.untold = "a communicator is made for the ranks of a run only";
    return declared;
  }
  try {
    ask(registry, found, declared);
  } catch (const Error& e) {  // it wants an option, a device, or facts of a run
    declared.untold = first_line(e.what());
  }
  return declared;
}

}  // namespace drivetrain
