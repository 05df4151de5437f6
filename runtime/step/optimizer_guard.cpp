#include "step/optimizer_guard.h"

#include <cmath>

#include "plugin_calls/plugin_call.h"
#include "plugin_calls/tensor_check.h"

namespace drivetrain {
namespace {

// Finds what a restart, and the measurement of memory, would stumble over.
class StateCheck : public StateVisitor {
 public:
  void tensor(const std::string& name, at::Tensor& t, const Layout&) override {
    if (!t.defined()) throw fail(ErrorCode::plugin, "its state \"", name, "\" is no tensor; `init` allocates it");
  }
  void integer(const std::string&, int64_t&) override {}
  void number(const std::string&, double&) override {}
};

struct TensorPlace {
  explicit TensorPlace(const at::Tensor& t)
      : sizes(t.sizes().vec()), dtype(t.scalar_type()), device(t.device()), data(t.const_data_ptr()) {}
  std::vector<int64_t> sizes;
  at::ScalarType dtype;
  at::Device device;
  const void* data;
};

void expect_in_place(const std::string& param, const char* what, const at::Tensor& t, const TensorPlace& before) {
  const std::string problem = tensor_problem(t, {before.sizes, before.dtype, before.device});
  if (!problem.empty()) throw fail(ErrorCode::plugin, "changed the ", what, " of ", param, ": ", problem);
  if (t.const_data_ptr() != before.data)
    throw fail(ErrorCode::plugin, "gave the ", what, " of ", param, " other memory; it is updated in place");
}

}  // namespace

std::vector<Hyper> OptimizerGuard::groups() {
  return plugin_call({id_, "groups"}, [&] {
    const std::vector<Hyper> groups = optimizer_.groups();
    if (groups.empty()) throw fail(ErrorCode::plugin, "returned no group; wanted one or more");
    for (const Hyper& h : groups)
      if (!std::isfinite(h.lr) || !std::isfinite(h.weight_decay) || !std::isfinite(h.momentum))
        throw fail(ErrorCode::plugin, "returned lr ", h.lr, ", weight_decay ", h.weight_decay, ", momentum ",
                   h.momentum);
    if (group_count_ == 0) group_count_ = groups.size();
    if (groups.size() != group_count_)
      throw fail(ErrorCode::plugin, "returned ", groups.size(), " groups; there were ", group_count_);
    return groups;
  });
}

void OptimizerGuard::start(std::vector<Trainables>& chunks) {
  const auto count = static_cast<int64_t>(groups().size());
  for (Trainables& chunk : chunks)
    for (Trainable& t : chunk) {
      t.group = plugin_call({id_, "group_of"}, [&] {
        const int group = optimizer_.group_of(*t.param);
        if (group < 0 || group >= count)
          throw fail(ErrorCode::plugin, "gave ", t.param->name, " the group ", group, "; there are groups 0 to ",
                     count - 1);
        return param_groups_.row_of(*t.param, group, static_cast<size_t>(count));
      });
      all_.push_back(t);
    }
  plugin_call({id_, "init"}, [&] { optimizer_.init(all_); });
  check_state();
}

void OptimizerGuard::update(const Trainables& chunk, const UpdateArgs& args) {
  plugin_call({id_, "update"}, [&] {
    if (known_) return optimizer_.update(chunk, args);
    std::vector<TensorPlace> before;
    for (const Trainable& t : chunk)
      for (const at::Tensor* one : {&t.value, &t.working, &t.grad}) before.emplace_back(*one);
    optimizer_.update(chunk, args);
    for (size_t i = 0; i < chunk.size(); ++i) {
      const Trainable& t = chunk[i];
      expect_in_place(t.param->name, "value", t.value, before[3 * i]);
      expect_in_place(t.param->name, "working value", t.working, before[3 * i + 1]);
      expect_in_place(t.param->name, "gradient", t.grad, before[3 * i + 2]);
    }
  });
}

void OptimizerGuard::updated() {
  if (known_) return;
  known_ = true;
  check_state();
}

void OptimizerGuard::check_state() const {
  StateCheck check;
  plugin_call({id_, "state"}, [&] { optimizer_.state(check); });
}

}  // namespace drivetrain
