// What `train --check-plugins` looks at in every step: that plugins keep their hands off what is not theirs at the
// time.
//
// - Values of parameters change by the optimizer's updates and by the storage owner's copies of them, and by nothing
//   else.
// From one update to the next they are the same in every visit (param.h); they are compared around every hook and every
// call of a model, so that the message names whose it was.
// - Every parameter that is trained gets a gradient from the backward of its unit.
//
// Every call reads all parameters that are in memory: for small models. Main thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <drivetrain/strategy.h>

#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL SpanCheck {
 public:
  // Both outlive it. `owner`: of the storage; may be null.
  SpanCheck(const UnitList& units, const Strategy* owner) : units_(units), owner_(owner) {}

  bool is_owner(const Strategy& strategy) const { return &strategy == owner_; }

  // The update of a step: from now on other values are right.
  void forget() { known_.clear(); }
  // The unit's values are complete: the hooks before its visit are done. Error(plugin) if they are not those of its
  // earlier visits.
  void opened(const Unit& unit);
  // Around a call that may change no values. Error(plugin) if it did.
  template <class Call>
  auto watch(const Call& call) {
    const Watched before = values_in_memory();
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      compare(before);
    } else {
      auto result = call();
      compare(before);
      return result;
    }
  }

  // Around the backward of a unit, whose trained parameters these are.
  std::vector<Param*> without_gradient(const std::vector<Param*>& params) const;
  void expect_gradients(const std::vector<Param*>& without_before) const;

 private:
  using Watched = std::vector<std::pair<const Param*, uint64_t>>;
  Watched values_in_memory() const;  // those that are as they were when a unit was visited
  void compare(const Watched& before) const;
  const std::string& unit_of(const Param& param) const;

  const UnitList& units_;
  const Strategy* const owner_;
  std::map<const Param*, uint64_t> known_;  // digests of right values
};

}  // namespace drivetrain
