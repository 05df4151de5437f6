#include "plan/auto_options.h"

#include <ATen/core/Tensor.h>

#include <drivetrain/model.h>
#include <drivetrain/optimizer.h>
#include <drivetrain/services.h>

#include "base/value_error.h"
#include "config/auto_switches.h"
#include "log/log_console.h"
#include "plan/plugin_maker.h"
#include "plugin_calls/plugin_call.h"
#include "rendezvous/rendezvous.h"

namespace drivetrain {

void ConfigFacts::ask(const char* kind) const {
  for (const Selection& selection : selections_) {
    if (selection.kind != kind || !selection.enabled) continue;
    Problems problems;
    const OptionTable& table = registry_.options(selection.kind, selection.name);
    const Value params = with_auto_values(table, selection.params, selection.path, *this, problems);
    const auto options = table.parse(params, concat(kind, "/", selection.name), selection.path, problems);
    problems.throw_if_any();
    // What these plugins say while they are asked, they say again when the run is planned.
    const auto log = make_console_log({.level = LogLevel::error});
    const auto store = make_local_store();
    Services services{*log, *store, 0, 1, 0, 1, at::Device(at::kCPU), 0, {}, nullptr};
    const auto maker = make_plugin_maker(registry_, services);
    services.plugins = maker.get();
    const auto plugin = registry_.create_plugin(selection.kind, selection.name, options.get(), services);
    const std::string id = concat(kind, "/", selection.name);
    if (const auto model = std::dynamic_pointer_cast<Model>(plugin))
      hidden_size_ = plugin_call({id, "facts"}, [&] { return model->facts().hidden_size; });
    if (const auto optimizer = std::dynamic_pointer_cast<Optimizer>(plugin))
      lr_ = plugin_call({id, "groups"}, [&] { return optimizer->groups().at(0).lr; });
    return;
  }
  throw fail(ErrorCode::config, "the file chooses no ", kind, " that could tell");
}

int64_t ConfigFacts::hidden_size() const {
  if (!hidden_size_) ask(Model::kKind);
  return *hidden_size_;
}

double ConfigFacts::lr() const {
  if (!lr_) ask(Optimizer::kKind);
  return *lr_;
}

Value with_auto_values(const OptionTable& table, Value section, const std::string& path, const AutoFacts& facts,
                       Problems& problems) {
  if (!section.is_object()) return section;
  for (Value::Member& member : section.members()) {
    const OptionField* const field = table.find(member.key);
    if (!field) continue;
    const std::string key = concat(path, ".", member.key);
    if (field->group) {
      member.value = with_auto_values(*field->group, member.value, key, facts, problems);
    } else if (is_auto(&member.value) && field->auto_value) {
      const Position where = member.value.where, key_where = member.value.key_where;
      try {
        member.value = field->auto_value(facts);
      } catch (const Error& e) {
        problems.add(where, concat(key, ": \"auto\" is ", field->auto_rule, ", which is not known: ", e.what()),
                     e.code());
        member.value = Value();
      }
      member.value.where = where, member.value.key_where = key_where;
      problems.resolve(where, key, short_json(member.value), concat("\"auto\": ", field->auto_rule));
    }
  }
  return section;
}

}  // namespace drivetrain
