// What a recompute policy plans for its options, and what it then keeps, without a run. For the plugins' tests.
#pragma once

#include <gtest/gtest.h>

#include <drivetrain/plan_record.h>
#include <drivetrain/recompute.h>
#include <drivetrain/toolkit/not_recorded.h>

#include "support/plugin_under_test.h"

namespace drivetrain::test {

// GPT-2 124M on one rank.
struct RecomputePlan {
  explicit RecomputePlan(const std::string& name, const std::string& options, const RunFacts& run = {})
      : ctx(facts(), run) {
    host.services.device = at::Device(run.device == "cpu" ? at::kCPU : at::kCUDA);
    policy = make_plugin<Recompute>(host, name, options);
    policy->plan(ctx);
  }

  static ModelFacts facts() {
    ModelFacts facts;
    facts.num_layers = 12, facts.hidden_size = 768, facts.vocab_size = 50304, facts.parameters = 124'475'904;
    facts.flops_per_token_fixed = 6.0 * (12.0 * 12 * 768 * 768 + 50304.0 * 768),
    facts.flops_per_token_S = 12.0 * 12 * 768;
    return facts;
  }
  static std::string lines(const std::vector<PlanRecord::Note>& notes) {
    std::string text;
    for (const auto& note : notes) text += (text.empty() ? "" : "\n") + note.text;
    return text;
  }
  std::string idle() const { return lines(ctx.no_effects()); }
  std::string costs() const { return lines(ctx.costs()); }
  bool capturable() const { return !ctx.capturables().empty(); }
  // The first reason; empty: none is given.
  std::string not_recorded() const {
    const std::string word = toolkit::kNotRecorded;
    for (const auto& offer : ctx.offers())
      if (offer.text.starts_with(word)) return capturable() ? "and yet it may be" : offer.text.substr(word.size());
    return "";
  }

  // "01.3": which of `blocks` blocks are kept only by their inputs, as a whole or in this region.
  std::string recomputed(int blocks, std::string_view region = {}) {
    struct Named : Unit {
      Named(std::string name, bool block) : Unit(std::move(name)), block_(block) {}
      bool is_block() const override { return block_; }
      std::vector<ParamPtr> params() const override { return {}; }
      Tensors forward(const Tensors& x, StepContext&, Saved&) override { return x; }
      Tensors backward(const Tensors& dy, StepContext&, Saved&) override { return dy; }
      const bool block_;
    };
    UnitList units;
    units.units.push_back(std::make_shared<Named>("embedding", false));
    for (int i = 0; i < blocks; ++i) units.units.push_back(std::make_shared<Named>(concat("block.", i), true));
    units.units.push_back(std::make_shared<Named>("head", false));
    policy->choose(units);
    policy->attach(units);
    std::string text;
    for (int i = 0; i < blocks; ++i) {
      const Keep keep = policy->keep({concat("block.", i), region});
      EXPECT_NE(keep, Keep::nothing);
      text += keep == Keep::all ? "." : std::to_string(i);
    }
    for (const char* end : {"embedding", "head"}) EXPECT_EQ(policy->keep({end, region}), Keep::all);
    return text;
  }

  Host host;
  PlanRecord ctx;
  std::unique_ptr<Recompute> policy;
};

inline RunFacts recompute_run(int64_t seq_length, const std::string& device = "cpu") {
  RunFacts run;
  run.seq_length = seq_length, run.device = device;
  return run;
}

}  // namespace drivetrain::test
