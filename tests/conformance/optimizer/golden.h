// The recorded optimizer cases: five steps on 37 elements in float64 and float32 (see the golden folder's README).
#pragma once

#include <algorithm>
#include <cmath>

#include <drivetrain/testkit/optimizer/suite.h>
#include "support/plugin_under_test.h"

namespace drivetrain::test {

inline at::Tensor golden_numbers(const Value& list, at::ScalarType type) {
  at::Tensor x = at::empty({static_cast<int64_t>(list.items().size())}, at::kDouble);
  double* to = x.mutable_data_ptr<double>();
  for (const Value& number : list.items()) *to++ = number.as_double();
  return x.to(type);
}

// `state` maps the recording's names (m, v) to the optimizer's (exp_avg, ...). Recorded parameters decay, so ours is a
// matrix.
inline void run_golden_optimizer(const Host& host, const std::string& plugin, const std::string& recording,
                                 const std::map<std::string, std::string>& state, const std::string& more = "{}") {
  const Value golden = read_json_file(DRIVETRAIN_GOLDEN_DIR "/adamw.json");
  const Value& recorded = *golden.find("optimizers")->find(recording);
  Value params = *recorded.find("params");
  const Value further = parse_json(more, "test");
  for (const Value::Member& m : further.members()) params.set(m.key, m.value);
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    auto optimizer = make_plugin_from<Optimizer>(host, plugin, params);
    const Trainable t = trainable(*optimizer, test_param("w", {37, 1}), golden_numbers(*golden.find("start"), type));
    optimizer->init({t});
    std::map<std::string, std::vector<double>> largest;  // of m and v, per element, up to the step
    for (int64_t step = 0; step < 5; ++step) {
      SCOPED_TRACE(concat(recording, " ", type, " step ", step + 1));
      // The gradient of the recording, written as a sum that grad_scale brings back.
      t.grad.copy_(golden_numbers(*golden.find("gradients")->items()[step].find("g"), type).mul(4));
      optimizer->update({t}, update_args(*optimizer, step, 0.25));
      Keeper keeper;
      optimizer->state(keeper);
      const Value& wanted = recorded.find("float64")->items()[step];  // the truth for float32 as well
      const auto compare = [&](const std::string& name, const at::Tensor& found) {
        const auto& list = wanted.find(name)->items();
        auto& largest_so_far = largest[name];
        largest_so_far.resize(list.size(), 0);
        for (size_t i = 0; i < list.size(); ++i) {
          const double ref = list[i].as_double(), x = found[static_cast<int64_t>(i)].item<double>();
          largest_so_far[i] = std::max(largest_so_far[i], std::abs(ref));
          const double bound = type == at::kDouble ? 1e-12 * std::abs(ref)
                               : name == "p"       ? 1e-6 * std::abs(ref) + 5e-8
                                                   : 2e-6 * largest_so_far[i];
          EXPECT_LE(std::abs(x - ref), bound) << name << " element " << i << ": " << x << ", wanted " << ref;
        }
      };
      compare("p", t.value);
      for (const auto& [name, ours] : state) compare(name, keeper.tensors.at("w." + ours + "@0"));
    }
  }
}

}  // namespace drivetrain::test
