// data_parallel/zero without a run: what follows from several keys together - sums, memory, recorded steps, what is
// off.
#include "test_plan.h"

#include <drivetrain/toolkit/not_recorded.h>
#include <drivetrain/toolkit/recorded_when_asked.h>

namespace drivetrain::test {
namespace {

constexpr int64_t kElements = 124'475'904;  // of model()

const Dtypes kBf16{at::kBFloat16, at::kFloat, at::kFloat, at::kFloat};
const Dtypes kBf16Sums{at::kBFloat16, at::kFloat, at::kBFloat16, at::kFloat};

TEST(ZeroPlan, where_nothing_is_shared_out_gradients_are_summed_once_per_step) {
  const auto every = [](const std::string& more, Given run) {
    run.accumulation = 4;
    return Planned(concat(R"({"stage": 3)", more, "}"), run).s.reduce_every;
  };
  EXPECT_EQ(every("", {.ranks = 1}), 0);
  EXPECT_EQ(every(R"(, "group_size": 1)", {}), 0);
  EXPECT_EQ(every(R"(, "group_size": 2)", {}), 1);
  EXPECT_EQ(every("", {.ranks = 1, .reduce_every = 1}), 1);
  EXPECT_EQ(every(R"(, "group_size": 1, "reduce_every": 2)", {}), 2);
  const Planned alone(R"({"stage": 2})", {.ranks = 1, .accumulation = 4});
  EXPECT_EQ(alone.costs(), "");  // "whole gradients" is what one rank holds anyway
  EXPECT_EQ(alone.memory(MemoryClass::gradients), concat("gradients, float32: ", 4 * kElements));
}

TEST(ZeroPlan, groups_whose_sums_are_rounded_in_between_have_bits_of_their_own) {
  const auto costs = [](int64_t group, int64_t ranks, const Dtypes& types) {
    return Planned(concat(R"({"stage": 1, "group_size": )", group, "}"), {.ranks = ranks, .dtypes = types}).costs();
  };
  EXPECT_EQ(costs(2, 8, kBf16Sums),
            "group_size = 2: sums over ranks follow the groups and are rounded to bfloat16 in between, so last bits "
            "differ from other strategies'; with sums in float32 they do not");
  EXPECT_TRUE(has(costs(3, 6, kBf16Sums), "with sums in float32 and a power of two they do not"));
  EXPECT_TRUE(has(costs(3, 6, kBf16), "with a power of two they do not"));
  EXPECT_EQ(costs(2, 8, kBf16) + costs(1, 8, kBf16Sums) + costs(8, 8, kBf16Sums), "");
}

TEST(ZeroPlan, a_group_of_no_ranks_is_refused) {
  EXPECT_EQ(Planned(R"({"stage": 1, "group_size": 0})").refusals(),
            "group_size = 0 is no number of ranks. Use -1 or leave it out: all ranks share one copy; 1: none do");
  EXPECT_EQ(Planned(R"({"stage": 1, "group_size": -1})").refusals(), "");
}

TEST(ZeroPlan, what_is_given_for_gathers_is_named_where_groups_of_1_have_none) {
  const std::string why = " changes nothing: groups of 1 share nothing out; every rank holds all parameters";
  EXPECT_EQ(Planned(R"({"stage": 3, "group_size": 1, "stage3_prefetch_bucket_size": 5e7,
                        "stage3_param_persistence_threshold": 0})")
                .idle(),
            "stage3_prefetch_bucket_size" + why + "\nstage3_param_persistence_threshold" + why);
  EXPECT_EQ(Planned(R"({"stage": 3, "mics_shard_size": 1, "stage3_max_live_parameters": 7})").idle(),
            "stage3_max_live_parameters" + why);
  EXPECT_EQ(Planned(R"({"stage": 3, "group_size": 1})").idle(), "");
  EXPECT_EQ(Planned(R"({"stage": 3, "stage3_prefetch_bucket_size": 5e7})", {.ranks = 1}).idle(), "");
}

TEST(ZeroPlan, waiting_at_once_means_gathers_too) {
  const Planned p(R"({"stage": 3, "overlap_comm": false})");
  EXPECT_FALSE(p.s.overlap);
  EXPECT_EQ(p.s.prefetch, 0);
  EXPECT_EQ(p.refusals() + p.idle() + p.costs(), "");
  const Planned both(R"({"stage": 3, "overlap_comm": false, "stage3_prefetch_bucket_size": 5})");
  EXPECT_EQ(both.s.prefetch, 0);
  EXPECT_EQ(
      both.idle(),
      "stage3_prefetch_bucket_size changes nothing: overlap_comm is false and every gather is waited for at once");
}

// Whether steps may be recorded, and what is said about it.
std::string recording(const std::string& json, const Given& run = {.device = "cuda"}) {
  const Planned p(json, run);
  EXPECT_EQ(p.refusals(), "");
  std::string said = p.ctx.capturables().empty() ? "" : "yes. ";
  const std::string why_not = toolkit::kNotRecorded;
  for (const auto& offer : p.ctx.offers()) {
    if (offer.text == toolkit::kRecordedWhenAsked) said += "asked. ";
    if (offer.text.starts_with(why_not)) said += concat("no: ", offer.text.substr(why_not.size()), ". ");
  }
  return said + p.costs();
}

TEST(ZeroPlan, a_step_with_gathers_that_overlap_is_recorded_for_who_asks) {
  for (const char* stage : {"1", "2", "3"})
    EXPECT_EQ(recording(concat(R"({"stage": )", stage, "}")), "asked. ") << stage;
  EXPECT_EQ(recording(R"({"stage": 3, "overlap_comm": false})"), "yes. ");
  EXPECT_EQ(recording(R"({"stage": 1})", {.ranks = 1, .device = "cuda"}), "yes. ");
  EXPECT_EQ(recording(R"({"stage": 1, "group_size": 1})"), "yes. ");
}

TEST(ZeroPlan, but_not_where_the_host_updates_or_a_second_copy_is_read) {
  EXPECT_EQ(recording(R"({"stage": 3, "zero_hpz_partition_size": 2})"),
            "no: zero_hpz_partition_size = 2 has a second copy, and which one a gather reads depends on the gathers "
            "before it; leave it out. ");
  const auto of_host = [](const char* key) {
    return concat("no: ", key, " puts into the host's memory what each step copies or updates there; leave it out. ");
  };
  EXPECT_EQ(recording(R"({"stage": 3, "overlap_comm": false, "offload_optimizer": {"device": "cpu"}})"),
            of_host("offload_optimizer.device"));
  EXPECT_EQ(recording(R"({"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}})"),
            of_host("offload_optimizer.device") + of_host("offload_param.device"));
  const std::string old = recording(R"({"stage": 3, "cpu_offload_param": true})");
  EXPECT_EQ(old.find(of_host("cpu_offload_param")), 0u) << old;
  EXPECT_EQ(recording(R"({"stage": 1, "offload_optimizer": {"device": "cpu"}})", {}), "asked. ") << "on the CPU";
}

TEST(ZeroPlan, memory_counts_what_the_host_holds) {
  const Given gpu{.device = "cuda"};
  const Planned state(R"({"stage": 2, "offload_optimizer": {"device": "cpu"}})", gpu);
  EXPECT_EQ(state.memory(MemoryClass::optimizer), concat("masters on the host, float32, 1/8: ", kElements / 2));
  EXPECT_EQ(state.memory(MemoryClass::gradients), concat("gradients, float32, 1/8: ", kElements / 2,
                                                         "\ngradients on the host, float32, 1/8: ", kElements / 2));
  const Planned values(R"({"stage": 3, "offload_param": {"device": "cpu"}})", gpu);
  EXPECT_EQ(values.memory(MemoryClass::parameters), concat("parameters on the host, float32, 1/8: ", kElements / 2));
  EXPECT_EQ(values.memory(MemoryClass::optimizer), concat("masters, float32, 1/8: ", kElements / 2));
  EXPECT_EQ(Planned(R"({"stage": 2})", gpu).memory(MemoryClass::optimizer), "");
  const Planned second(R"({"stage": 3, "zero_hpz_partition_size": 2})", {.dtypes = kBf16});
  EXPECT_EQ(second.memory(MemoryClass::buffers), concat("second copy for backward, bfloat16, 1/2: ", kElements));
  EXPECT_EQ(second.memory(MemoryClass::parameters), concat("parameters, bfloat16, 1/8: ", kElements / 4));
}

TEST(ZeroPlan, what_the_host_holds_is_told_apart_with_the_copies_that_it_takes) {
  const Given gpu{.accumulation = 4, .device = "cuda", .dtypes = kBf16};
  const auto part = [](int64_t bytes) { return kElements / 8 * bytes; };
  const Planned state(R"({"stage": 2, "offload_optimizer": {"device": "cpu"}})", gpu);
  EXPECT_EQ(state.host_memory(),
            concat("gradients on the host, float32, 1/8: ", part(4), "\nmasters on the host, float32, 1/8: ", part(4)));
  EXPECT_EQ(state.host_traffic(),
            concat("gradients to the host: ", part(4), " in 1 b\nnew values from the host: ", part(2), " in 1 u"));
  EXPECT_TRUE(state.ctx.update().on_host && state.ctx.update().to_device);
  const Planned both(R"({"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}})",
                     gpu);
  EXPECT_EQ(both.host_traffic(), concat("gradients to the host: ", part(4), " in 1 b\n",
                                        "values from the host for forward passes: ", part(2 * 4), " in 4 f\n",
                                        "values from the host for backward passes: ", part(2 * 4), " in 4 b"));
  EXPECT_TRUE(both.ctx.update().on_host && !both.ctx.update().to_device);
  const Planned values(R"({"stage": 3, "offload_param": {"device": "cpu"}, "stage3_max_reuse_distance": 1e12})", gpu);
  EXPECT_EQ(values.host_traffic(), concat("new values to the host: ", part(2), " in 1 n\n",
                                          "values from the host for forward passes: ", part(2), " in 1 f"));
  EXPECT_FALSE(values.ctx.update().on_host);
  const Planned on_cpu(R"({"stage": 2, "offload_optimizer": {"device": "cpu"}})");
  EXPECT_EQ(on_cpu.host_memory() + on_cpu.host_traffic(), "");
  EXPECT_FALSE(on_cpu.ctx.update().on_host);
}

TEST(ZeroPlan, copies_that_nothing_can_go_on_beside_are_planned_as_waited_for) {
  const Given gpu{.device = "cuda", .dtypes = kBf16};
  const auto beside = [&](const std::string& json) {
    std::string marks;
    for (const auto& [by, copies] : Planned(json, gpu).ctx.copies())
      marks += "nfbu"[static_cast<size_t>(copies.beside)];
    return marks;
  };
  EXPECT_EQ(beside(R"({"stage": 2, "offload_optimizer": {"device": "cpu"}})"), "bu");
  EXPECT_EQ(beside(R"({"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": false}})"), "nn");
  EXPECT_EQ(beside(R"({"stage": 3, "offload_param": {"device": "cpu"}})"), "nfb");
  EXPECT_EQ(beside(R"({"stage": 3, "offload_param": {"device": "cpu"}, "stage3_prefetch_bucket_size": 0})"), "nnn");
  EXPECT_EQ(beside(R"({"stage": 3, "offload_param": {"device": "cpu"}, "overlap_comm": false})"), "nnn");
}

TEST(ZeroPlan, stage_0_names_what_it_leaves_out) {
  EXPECT_EQ(Planned(R"({"stage": 0})").idle(), "");
  EXPECT_EQ(Planned(R"({"stage": 0, "reduce_bucket_size": 5e8, "offload_optimizer": {"pin_memory": true}})").idle(),
            "reduce_bucket_size changes nothing: stage is 0 and every rank holds everything\n"
            "offload_optimizer changes nothing: stage is 0 and every rank holds everything");
  EXPECT_EQ(Planned(R"({"stage": 0, "cpu_offload": false})").refusals(), "");
}

}  // namespace
}  // namespace drivetrain::test
