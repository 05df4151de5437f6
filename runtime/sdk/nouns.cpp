// Key functions and small members of the SDK's nouns and kinds: type information of every interface lives here, once.
#include <drivetrain/communicator.h>
#include <drivetrain/data_parallel.h>
#include <drivetrain/dataset.h>
#include <drivetrain/error.h>
#include <drivetrain/lr_schedule.h>
#include <drivetrain/model.h>
#include <drivetrain/monitor.h>
#include <drivetrain/precision.h>
#include <drivetrain/recompute.h>
#include <drivetrain/schedule.h>
#include <drivetrain/store.h>
#include <drivetrain/strategy.h>

#include <algorithm>

namespace drivetrain {
namespace {

class CompletedWork final : public Work {
 public:
  void wait() override {}
};

}  // namespace

Plugin::~Plugin() = default;
Store::~Store() = default;
Work::~Work() = default;
WorkPtr completed_work() {
  static const WorkPtr work = std::make_shared<CompletedWork>();
  return work;
}
Group::~Group() = default;
at::Tensor Group::allocate_once(int64_t, at::ScalarType) { return {}; }
Communicator::~Communicator() = default;
Unit::~Unit() = default;
Layer::~Layer() = default;
LayerFactory::~LayerFactory() = default;
StateVisitor::~StateVisitor() = default;
Optimizer::~Optimizer() = default;
LrSchedule::~LrSchedule() = default;
Schedule::~Schedule() = default;
Strategy::~Strategy() = default;
Precision::~Precision() = default;
DataParallel::~DataParallel() = default;
Model::~Model() = default;
Dataset::~Dataset() = default;
Monitor::~Monitor() = default;

Param::Param(std::string n, Layout l, InitRule i) : name(std::move(n)), layout(std::move(l)), init(i) {}

void accumulate_grad(Param& param, const at::Tensor& gradient) {
  if (param.grad_fresh)
    param.grad.copy_(gradient);
  else
    param.grad.add_(gradient);
  param.grad_fresh = false;
}

void Unit::backward_weight(StepContext&, Saved& saved) {
  for (const auto& work : saved.weight_work) work();
  saved.weight_work.clear();
}

std::vector<ParamPtr> UnitList::owned(size_t unit) const {
  std::vector<ParamPtr> earlier;
  for (size_t i = 0; i < unit; ++i) {
    const auto params = units[i]->params();
    earlier.insert(earlier.end(), params.begin(), params.end());
  }
  std::vector<ParamPtr> list;
  for (const ParamPtr& param : units[unit]->params())
    if (std::find(earlier.begin(), earlier.end(), param) == earlier.end()) list.push_back(param);
  return list;
}

std::vector<ParamPtr> UnitList::all() const {
  std::vector<ParamPtr> list;
  for (size_t i = 0; i < units.size(); ++i)
    for (const ParamPtr& param : owned(i)) list.push_back(param);
  return list;
}

void PlanContext::claim_axis(const std::string& axis, int64_t size, bool joins_gradients, int place) {
  claims_.push_back({axis, size, joins_gradients, place, speaker_});
}
void PlanContext::offer(const std::string& ability) { offers_.push_back({speaker_, ability}); }
void PlanContext::need(const std::string& ability, const std::string& why) {
  needs_.push_back({ability, why, speaker_});
}
void PlanContext::refuse(const std::string& problem) { refusals_.push_back({speaker_, problem}); }
void PlanContext::cost(const std::string& line) { costs_.push_back({speaker_, line}); }
void PlanContext::capturable() { capturables_.push_back(speaker_); }
void PlanContext::no_effect(const std::string& key, const std::string& why) {
  const std::string text = concat(key, " changes nothing: ", why);
  const auto same = [&](const Note& note) { return note.by == speaker_ && note.text == text; };
  if (std::none_of(no_effects_.begin(), no_effects_.end(), same)) no_effects_.push_back({speaker_, text});
}
void PlanContext::memory(MemoryClass memory_class, const std::string& what, double bytes) {
  memories_.push_back({speaker_, what, bytes, memory_class});
}
void PlanContext::traffic(const std::string& axis, const std::string& what, double bytes) {
  traffics_.push_back({speaker_, axis, what, bytes});
}
void PlanContext::updates(double elements) { updated_ = elements; }

}  // namespace drivetrain
