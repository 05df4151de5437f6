// Keys and values of a batch of texts that grow token by token. Main thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/step_context.h>

#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL GenerationCache final : public KeyValueCache {
 public:
  // `context`: of the passes that use the cache; it outlives it. `capacity`: positions of each row.
  GenerationCache(const StepContext& context, int64_t rows, int64_t capacity);

  const std::vector<int64_t>& past() const override { return past_; }
  // Memory is taken for all of the capacity when a layer first comes. Error(config) for a second time in a pass, and
  // behind the capacity.
  std::pair<at::Tensor, at::Tensor> append(const std::string& name, const at::Tensor& k, const at::Tensor& v) override;

  // After a pass: how many of its columns count, of each row.
  void advance(const std::vector<int64_t>& columns);
  // These rows go on, in this order.
  void keep(const std::vector<int64_t>& rows);
  // Units whose layers have appended something so far.
  const std::set<int64_t>& units() const { return units_; }
  int64_t bytes() const;  // of all layers so far

 private:
  // [B, G, capacity, C]: what a head attends to lies together.
  struct Layer {
    at::Tensor k, v;
    bool in_this_pass = false;
  };

  const StepContext& context_;
  const int64_t capacity_;
  std::vector<int64_t> past_;
  std::map<std::string, Layer> layers_;
  std::set<int64_t> units_;
};

}  // namespace drivetrain
