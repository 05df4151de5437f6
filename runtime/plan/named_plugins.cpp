#include "plan/named_plugins.h"

#include "flight/group.h"
#include "plugin_calls/plugin_call.h"

namespace drivetrain {

int64_t NamedSchedule::stages() const {
  return plugin_call({id_, "stages"}, [&] { return inner_->stages(); });
}

int64_t NamedSchedule::chunks() const {
  return plugin_call({id_, "chunks"}, [&] { return inner_->chunks(); });
}

int64_t NamedSchedule::piece(int64_t stage, int64_t chunk) const {
  return plugin_call({id_, "piece"}, [&] { return inner_->piece(stage, chunk); });
}

std::vector<int64_t> NamedSchedule::partition(const std::vector<double>& unit_costs) const {
  return plugin_call({.id = id_, .hook = "partition", .keeps_errors = true},
                     [&] { return inner_->partition(unit_costs); });
}

Program NamedSchedule::program(int64_t stage, int64_t micro_batches, Pass pass) const {
  return plugin_call({id_, "program"}, [&] { return inner_->program(stage, micro_batches, pass); });
}

int64_t NamedSchedule::slots(int64_t stage, int64_t micro_batches) const {
  return plugin_call({id_, "slots"}, [&] { return inner_->slots(stage, micro_batches); });
}

GroupPtr NamedCommunicator::make_group(const std::vector<int64_t>& ranks, const std::string& label) {
  GroupPtr group = plugin_call({.id = id_, .hook = "make_group", .keeps_errors = true},
                               [&] { return inner_->make_group(ranks, label); });
  return recorded_group(std::move(group), flight_);
}

bool NamedCommunicator::has_one_memory() const {
  return plugin_call({id_, "has_one_memory"}, [&] { return inner_->has_one_memory(); });
}

void NamedCommunicator::abort(const std::string& reason) noexcept {
  const CurrentCall current({.id = id_, .hook = "abort"});
  inner_->abort(reason);
}

}  // namespace drivetrain
