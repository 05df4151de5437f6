// The recorded attention cases: float32 inputs, float64 results, tolerances per tensor (see the golden folder's
// README).
#pragma once

#include <gtest/gtest.h>

#include <drivetrain/safetensors.h>

#include <drivetrain/testkit/attention/suite.h>
#include "support/plugin_under_test.h"

namespace drivetrain::test {

inline void expect_within(const at::Tensor& found, const SafetensorsFile& file, const std::string& name,
                          double tolerance) {
  const at::Tensor wanted = file.tensor(name);
  const double worst = found.to(at::kDouble).reshape(wanted.sizes()).sub(wanted).abs().max().item<double>();
  EXPECT_LE(worst, tolerance) << name;
}

// Runs every recorded case the plugin declares, in float32 with the recorded tolerances and in float64.
inline int run_golden_attention(const Attention& attention) {
  const std::string folder = DRIVETRAIN_GOLDEN_DIR "/attention/";
  const Value golden = read_json_file(folder + "cases.json");
  const AttentionAbilities can = attention.abilities();
  int cases = 0;
  for (const Value::Member& c : golden.find("cases")->members()) {
    const Value &window = *c.value.find("window"), &ends = *c.value.find("cu_seqlens");
    if ((!window.is_null() && !can.window) || (!ends.is_null() && !can.varlen)) continue;
    const SafetensorsFile file = SafetensorsFile::open(folder + c.value.find("file")->as_string());
    for (const Value::Member& mode : c.value.find("tolerance_float32_abs")->members()) {
      AttentionArgs args;
      args.causal = mode.key == "causal";
      args.scale = c.value.find("scale")->as_double();
      if (!window.is_null()) args.window = window.as_int();
      if (!ends.is_null())
        for (const Value& end : ends.items()) args.varlen.cu_seqlens.push_back(end.as_int());
      for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
        SCOPED_TRACE(concat(c.key, " ", mode.key, " ", type));
        const auto read = [&](const char* name) {
          const at::Tensor x = file.tensor(name).to(type);
          return x.dim() == 3 ? x.unsqueeze(0) : x;
        };
        const AttentionResult r = run_attention(attention, read("q"), read("k"), read("v"), read("dout"), args);
        const std::pair<const char*, at::Tensor> parts[] = {
            {"out", r.out}, {"lse", r.lse}, {"dq", r.dq}, {"dk", r.dk}, {"dv", r.dv}};
        for (const auto& [part, found] : parts)
          expect_within(found, file, mode.key + "." + part,
                        type == at::kDouble ? 1e-13 : mode.value.find(part)->as_double());
        ++cases;
      }
    }
  }
  return cases;
}

}  // namespace drivetrain::test
