// What a plugin derived from StateSharing plans for its options, without a run. For the plugins' tests.
#pragma once

#include <gtest/gtest.h>

#include <drivetrain/plan_record.h>
#include <drivetrain/toolkit/sharding/state_sharing.h>

#include "support/plugin_under_test.h"

namespace drivetrain::test {

struct Given {
  int64_t ranks = 8, accumulation = 1, local_size = 4;
  std::string device = "cpu";
  std::optional<int64_t> reduce_every = {};
  Dtypes dtypes = {};
};

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// `Plugin::Options` from a JSON text; Error(config) with all problems of it.
template <class Plugin>
typename Plugin::Options parsed_options(const std::string& json, const std::string& plugin,
                                        const std::string& section) {
  Problems problems;
  const auto options = Plugin::options().parse(parse_json(json, "a.json"), plugin, section, problems);
  problems.throw_if_any();
  return *std::static_pointer_cast<typename Plugin::Options>(options);
}

template <class Plugin>
struct PlannedSharding {
  PlannedSharding(const typename Plugin::Options& options, const ModelFacts& model, const Given& run)
      : ctx(model, facts(run)), plugin(options, host.services) {
    host.services.local_size = run.local_size;
    host.services.dtypes = run.dtypes;
    plugin.plan(ctx);
  }

  static RunFacts facts(const Given& run) {
    RunFacts facts;
    facts.world_size = facts.rest_ranks = run.ranks, facts.accumulation = run.accumulation, facts.device = run.device;
    facts.reduce_every = run.reduce_every;
    return facts;
  }
  static std::string lines(const std::vector<PlanRecord::Note>& notes) {
    std::string text;
    for (const auto& note : notes) text += (text.empty() ? "" : "\n") + note.text;
    return text;
  }
  // "dp 2, replica rest"
  std::string axes() const {
    std::string text;
    for (const auto& claim : ctx.claims()) {
      EXPECT_TRUE(claim.joins_gradients());
      text += concat(text.empty() ? "" : ", ", claim.axis, " ",
                     claim.size == PlanRecord::kRest ? "rest" : std::to_string(claim.size));
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

  // The same of what lies in the host's memory, beside a device.
  std::string host_memory() const {
    std::string text;
    for (const auto& m : ctx.memories())
      if (m.on_host) text += concat(text.empty() ? "" : "\n", m.what, ": ", static_cast<int64_t>(m.bytes));
    return text;
  }
  // "gradients to the host: 62237952 in 1 b": beside nothing, forward, backward or update
  std::string host_traffic() const {
    std::string text;
    for (const auto& [by, c] : ctx.copies())
      text += concat(text.empty() ? "" : "\n", c.what, ": ", static_cast<int64_t>(c.bytes), " in ", c.micro_batches,
                     " ", "nfbu"[static_cast<size_t>(c.beside)]);
    return text;
  }

  Host host;
  PlanRecord ctx;
  Plugin plugin;
  const ShardingOptions& s = plugin.sharding();
};

using Axes = std::vector<std::string>;

}  // namespace drivetrain::test
