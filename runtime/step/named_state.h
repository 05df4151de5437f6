// Names of what a StateVisitor is shown, below the name of their owner. Main thread.
#pragma once

#include <string>
#include <utility>

#include <drivetrain/state.h>

namespace drivetrain {

// Puts `owner` and a slash in front of every name.
class NamedState final : public StateVisitor {
 public:
  NamedState(StateVisitor& inner, std::string owner) : inner_(inner), owner_(std::move(owner)) {}
  void tensor(const std::string& name, at::Tensor& t, const Layout& layout) override {
    inner_.tensor(owner_ + "/" + name, t, layout);
  }
  void integer(const std::string& name, int64_t& value) override { inner_.integer(owner_ + "/" + name, value); }
  void number(const std::string& name, double& value) override { inner_.number(owner_ + "/" + name, value); }

 private:
  StateVisitor& inner_;
  const std::string owner_;
};

}  // namespace drivetrain
