// What an object showed to a StateVisitor at one moment, to be shown to another visitor later. Any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <drivetrain/state.h>

namespace drivetrain {

class StateCopy final : public StateVisitor {
 public:
  void tensor(const std::string& name, at::Tensor& t, const Layout& layout) override {
    entries_.push_back([name, copy = t.clone(), layout](StateVisitor& v) mutable { v.tensor(name, copy, layout); });
  }
  void integer(const std::string& name, int64_t& value) override {
    entries_.push_back([name, value](StateVisitor& v) mutable { v.integer(name, value); });
  }
  void number(const std::string& name, double& value) override {
    entries_.push_back([name, value](StateVisitor& v) mutable { v.number(name, value); });
  }
  // For visitors that save: what a visitor writes goes into the copy.
  void show(StateVisitor& visitor) {
    for (auto& entry : entries_) entry(visitor);
  }

 private:
  std::vector<std::function<void(StateVisitor&)>> entries_;
};

}  // namespace drivetrain
