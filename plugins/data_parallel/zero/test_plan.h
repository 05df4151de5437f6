// What data_parallel/zero plans for a section, without a run. For its tests.
#pragma once

#include <gtest/gtest.h>

#include "support/plugin_under_test.h"
#include "zero.h"

namespace drivetrain::test {

struct Given {
  int64_t ranks = 8, accumulation = 1;
  std::string device = "cpu";
  std::optional<int64_t> reduce_every = {};
  Dtypes dtypes = {};
};

// GPT-2 124M.
inline ModelFacts model() {
  ModelFacts facts;
  facts.hidden_size = 768, facts.ffn_hidden_size = 3072, facts.vocab_size = 50304, facts.parameters = 124'475'904;
  return facts;
}

inline ZeroOptions parsed(const std::string& json) {
  Problems problems;
  const auto options =
      zero_table().parse(parse_json(json, "a.json"), "data_parallel/zero", "zero_optimization", problems);
  problems.throw_if_any();
  return *std::static_pointer_cast<ZeroOptions>(options);
}

struct Planned {
  Planned(const std::string& json, const Given& run = {})
      : ctx(model(), facts(run)), zero(parsed(json), host.services) {
    host.services.dtypes = run.dtypes;
    zero.plan(ctx);
  }

  static RunFacts facts(const Given& run) {
    RunFacts facts;
    facts.world_size = run.ranks, facts.accumulation = run.accumulation, facts.device = run.device;
    facts.reduce_every = run.reduce_every;
    return facts;
  }
  static std::string lines(const std::vector<PlanContext::Note>& notes) {
    std::string text;
    for (const auto& note : notes) text += (text.empty() ? "" : "\n") + note.text;
    return text;
  }
  // "dp 2, replica rest"
  std::string axes() const {
    std::string text;
    for (const auto& claim : ctx.claims()) {
      EXPECT_TRUE(claim.joins_gradients);
      text += concat(text.empty() ? "" : ", ", claim.axis, " ",
                     claim.size == PlanContext::kRest ? "rest" : std::to_string(claim.size));
    }
    return text;
  }
  std::string refusals() const { return lines(ctx.refusals()); }
  std::string idle() const { return lines(ctx.no_effects()); }
  std::string costs() const { return lines(ctx.costs()); }

  // "masters, float32, 1/8: 62237952", of one class of memory, in bytes
  std::string memory(MemoryClass of) const {
    std::string text;
    for (const auto& m : ctx.memories())
      if (m.memory_class == of) text += concat(text.empty() ? "" : "\n", m.what, ": ", static_cast<int64_t>(m.bytes));
    return text;
  }

  Host host;
  PlanContext ctx;
  Zero zero;
  const ShardingOptions& s = zero.sharding();
};

using Axes = std::vector<std::string>;

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace drivetrain::test
