// data_parallel/zero without a run: keys that change nothing, that are refused, and what lives on the host.
#include "key_rules.h"
#include "test_plan.h"

namespace drivetrain::test {
namespace {

TEST(ZeroKeys, keys_without_effect_are_named_once_and_only_if_they_ask_for_something_else) {
  EXPECT_EQ(Planned(R"({"stage": 2, "contiguous_gradients": true, "reduce_scatter": true, "overlap_comm": true,
                        "allgather_partitions": true, "stage3_gather_16bit_weights_on_model_save": true,
                        "ignore_unused_parameters": true, "round_robin_gradients": false})")
                .idle(),
            "");
  EXPECT_EQ(Planned(R"({"stage": 1, "contiguous_gradients": false})").idle(),
            "contiguous_gradients changes nothing: the gradients of a bucket always lie together");
  for (const char* key :
       {"reduce_scatter", "use_multi_rank_bucket_allreduce", "allgather_partitions", "ignore_unused_parameters",
        "load_from_fp32_weights", "override_module_apply", "memory_efficient_linear",
        "stage3_gather_16bit_weights_on_model_save", "enable_sanity_checks", "cpu_offload_use_pin_memory"}) {
    const Planned p(concat(R"({"stage": 2, ")", key, R"(": false})"));
    EXPECT_EQ(p.ctx.no_effects().size(), 1u) << key;
    EXPECT_TRUE(has(p.idle(), concat(key, " changes nothing: "))) << p.idle();
  }
  for (const char* key : {"round_robin_gradients", "elastic_checkpoint", "pipeline_loading_checkpoint",
                          "log_trace_cache_warnings", "save_muon_momentum_buffer_in_memory",
                          "stage3_use_all_reduce_for_fetch_params", "mics_hierarchical_params_gather"}) {
    const Planned p(concat(R"({"stage": 3, ")", key, R"(": true})"));
    EXPECT_EQ(p.ctx.no_effects().size(), 1u) << key;
    EXPECT_TRUE(has(p.idle(), key)) << p.idle();
  }
  EXPECT_TRUE(
      has(Planned(R"({"stage": 3, "leaf_module": {"classes": ["Block"]}})").idle(), "leaf_module changes nothing"));
  EXPECT_TRUE(has(Planned(R"({"stage": 3, "stage3_module_granularity_threshold": 9})").idle(), "a unit of the model"));
}

TEST(ZeroKeys, the_table_of_options_gives_the_reason_that_a_run_gives) {
  const OptionTable table = zero_table();
  int64_t reasons = 0;
  for (const KeyRule& rule : zero_key_rules()) {
    const OptionField* const field = table.find(rule.key);
    ASSERT_NE(field, nullptr) << rule.key;
    EXPECT_EQ(field->name, rule.key);
    EXPECT_TRUE(has(field->help, rule.why)) << rule.key << ": " << field->help;
    reasons += rule.why.empty() ? 0 : 1;
  }
  EXPECT_GT(reasons, 20);
}

TEST(ZeroKeys, keys_of_stage_3_at_a_lower_stage_are_named_once) {
  const Planned p(
      R"({"stage": 1, "stage3_prefetch_bucket_size": 5e7, "param_persistence_threshold": 1e5, "stage3_max_live_parameters": 1e9,
                      "stage3_max_reuse_distance": 1e9})");
  EXPECT_EQ(p.ctx.no_effects().size(), 4u);
  EXPECT_TRUE(has(
      p.idle(),
      "stage3_param_persistence_threshold changes nothing: it is for stage 3; here every rank holds all parameters"));
  EXPECT_EQ(p.refusals(), "");
}

TEST(ZeroKeys, sequential_gathers_fetch_nothing_ahead) {
  const Planned p(R"({"stage": 3, "stage3_allgather_sequential": true})");
  EXPECT_EQ(p.s.prefetch, 0);
  EXPECT_EQ(p.idle(), "");
  const Planned both(R"({"stage": 3, "stage3_allgather_sequential": true, "stage3_prefetch_bucket_size": 5})");
  EXPECT_EQ(both.s.prefetch, 0);
  EXPECT_TRUE(has(both.idle(), "stage3_prefetch_bucket_size changes nothing: stage3_allgather_sequential is true"));
}

TEST(ZeroKeys, the_cap_on_what_stays_whole_is_all_or_nothing) {
  EXPECT_EQ(Planned(R"({"stage": 3, "stage3_model_persistence_threshold": 9223372036854775807})").refusals(), "");
  EXPECT_EQ(Planned(R"({"stage": 3, "stage3_model_persistence_threshold": 0})").s.persistent, 0);
  EXPECT_TRUE(
      has(Planned(R"({"stage": 3, "stage3_model_persistence_threshold": 1e6})").refusals(), "is not in this version"));
}

TEST(ZeroKeys, what_is_not_in_this_version_is_refused_with_what_to_do) {
  for (const char* setting : {R"("zero_quantized_weights": true)", R"("zero_quantized_nontrainable_weights": true)",
                              R"("zero_quantized_gradients": true)", R"("zeropp_loco_param": {"err_beta": 0.8})",
                              R"("zenflow": {"topk_ratio": 0.1})", R"("legacy_stage1": true)"}) {
    const Planned p(concat(R"({"stage": 3, )", setting, "}"));
    EXPECT_TRUE(has(p.refusals(), " is not in this version: ")) << setting << "\n" << p.refusals();
    EXPECT_TRUE(has(p.refusals(), "; remove it")) << setting;
  }
  EXPECT_EQ(
      Planned(
          R"({"stage": 3, "zero_quantized_weights": false, "zero_quantized_gradients": false, "legacy_stage1": false,
                        "zenflow": null})")
          .refusals(),
      "");
  EXPECT_TRUE(has(error_of([] { parsed(R"({"stage": 1, "grad_hooks": true})"); }), "rejects it; remove it"));
}

TEST(ZeroKeys, host_memory_is_where_a_run_on_the_cpu_already_is) {
  const Planned both(
      R"({"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true, "buffer_count": 4, "ratio": 0.5},
                         "offload_param": {"device": "CPU", "buffer_size": 1e8, "max_in_cpu": 1e9}})");
  EXPECT_EQ(both.refusals(), "");
  EXPECT_EQ(both.idle(),
            "offload_optimizer changes nothing: the run is on the CPU: optimizer state is in host memory already\n"
            "offload_param changes nothing: the run is on the CPU: parameters are in host memory already");
  EXPECT_EQ(Planned(R"({"stage": 1, "cpu_offload": true})").idle(),
            "offload_optimizer changes nothing: the run is on the CPU: optimizer state is in host memory already");
}

TEST(ZeroKeys, offload_is_off_without_a_device) {
  EXPECT_EQ(Planned(R"({"stage": 3, "offload_optimizer": {}, "offload_param": {"device": "none"}})").idle(), "");
  EXPECT_EQ(Planned(R"({"stage": 2, "offload_optimizer": {"pin_memory": true, "fast_init": false}})").idle(),
            "offload_optimizer changes nothing: its \"device\" is \"none\", and nothing is kept elsewhere");
}

TEST(ZeroKeys, offload_that_cannot_be_is_refused) {
  const Given gpu{.device = "cuda"};
  const Planned below(R"({"stage": 2, "offload_param": {"device": "cpu"}})", gpu);  // DeepSpeed takes it, too
  EXPECT_EQ(below.refusals(), "");
  EXPECT_EQ(below.idle(), "offload_param changes nothing: parameters are sharded at stage 3; found stage 2");
  EXPECT_TRUE(has(Planned(R"({"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/x"}})").refusals(),
                  "offload_param.device = \"nvme\" is not in this version"));
  EXPECT_TRUE(has(Planned(R"({"stage": 1, "cpu_offload": true, "offload_optimizer": {"device": "none"}})").refusals(),
                  "which DeepSpeed refuses together; remove cpu_offload"));
  EXPECT_TRUE(has(error_of([] { parsed(R"({"stage": 1, "offload_optimizer": {"device": "gpu"}})"); }),
                  "\"none\", \"cpu\" or \"nvme\""));
}

TEST(ZeroKeys, offload_on_a_device_moves_state_and_parts_to_the_host) {
  const Given gpu{.device = "cuda"};
  const Planned state(R"({"stage": 1, "offload_optimizer": {"device": "cpu", "pin_memory": false}})", gpu);
  EXPECT_TRUE(state.s.offload_state);
  EXPECT_FALSE(state.s.offload_values || state.s.pinned);
  EXPECT_EQ(state.refusals() + state.idle(), "");
  const Planned both(R"({"stage": 3, "cpu_offload": true, "offload_param": {"device": "cpu", "buffer_count": 5}})",
                     gpu);
  EXPECT_TRUE(both.s.offload_state && both.s.offload_values && both.s.pinned);
  EXPECT_TRUE(has(both.idle(), "offload_param.buffer_count changes nothing"));
  EXPECT_FALSE(Planned(R"({"stage": 3})", gpu).s.offload_state);
  EXPECT_TRUE(
      has(Planned(R"({"stage": 3, "offload_param": {"device": "cpu"}})", {.ranks = 1, .device = "cuda"}).refusals(),
          "needs parameters that are sharded"));
  EXPECT_TRUE(has(Planned(R"({"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}})", gpu).refusals(),
                  "is not in this version"));
  EXPECT_TRUE(has(
      Planned(
          R"({"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": false}, "offload_param": {"device": "cpu"}})",
          gpu)
          .refusals(),
      "make them equal"));
}

}  // namespace
}  // namespace drivetrain::test
