// precision/fp8 in a run: its options, its plan, and what its losses have to do with those of other precisions.
#include <gtest/gtest.h>

#include <cmath>

#include <drivetrain/plan_record.h>
#include <drivetrain/precision.h>

#include <drivetrain/testkit/precision/suite.h>
#include "gpu.h"
#include "support/plugin_under_test.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

// --- options and plans

struct Fp8Plugin : ::testing::Test {
  Host host;
  std::unique_ptr<Precision> make(const std::string& json = "{}") { return make_plugin<Precision>(host, "fp8", json); }
};

TEST_F(Fp8Plugin, keeps_bfloat16_and_float32_around_the_products) {
  const Dtypes types = make()->dtypes();
  EXPECT_EQ(types.param, at::kBFloat16);
  for (const at::ScalarType type : {types.grad, types.reduce, types.master}) EXPECT_EQ(type, at::kFloat);
  EXPECT_FALSE(make()->loss_scaling().has_value());
  EXPECT_TRUE(make()->skips_not_finite());
}

TEST_F(Fp8Plugin, takes_transformer_engines_words_only) {
  for (const char* wrong : {R"({"recipe": "MXFP8BlockScaling"})", R"({"fp8_format": "E5M2"})",
                            R"({"amax_compute_algo": "mean"})", R"({"reduce_amax": false})", R"({"margin": -1})"})
    EXPECT_NE(error_of([&] { make(wrong); }), "") << wrong;
  EXPECT_EQ(error_of([&] {
              make(R"({"recipe": "DelayedScaling", "fp8_format": "E4M3", "margin": 1, "amax_history_len": 16,
                       "amax_compute_algo": "most_recent", "reduce_amax": true, "fp8_wgrad": false})");
            }),
            "");
}

// A file means the same on every device, so the CPU refuses as well what LibTorch does not multiply on a GPU.
TEST_F(Fp8Plugin, refuses_e5m2_in_blocks_with_what_to_do) {
  const std::string message = error_of([&] { make(R"({"recipe": "Float8BlockScaling", "fp8_format": "HYBRID"})"); });
  for (const char* part : {"fp8_format = \"HYBRID\"", "\"Float8BlockScaling\" has e4m3 alone", "Remove fp8_format",
                           "\"Float8CurrentScaling\" or \"DelayedScaling\""})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  for (const char* right : {R"({"recipe": "Float8BlockScaling", "fp8_format": "E4M3"})",
                            R"({"recipe": "Float8BlockScaling"})", R"({"fp8_format": "HYBRID"})"})
    EXPECT_EQ(error_of([&] { make(right); }), "") << right;
  const TempFolder folder;
  const std::string section = R"("fp8": {"enabled": true, "recipe": "Float8BlockScaling", "fp8_format": "HYBRID"})";
  const std::string in_a_run = error_of([&] { run_threads(precision_config(folder, "run", section), 1); });
  EXPECT_TRUE(in_a_run.starts_with("test:1:9  precision/fp8: fp8_format"))
      << in_a_run << "\nwanted: the section's place";
}

TEST_F(Fp8Plugin, names_what_a_recipe_without_memory_does_not_read) {
  PlanRecord ctx({}, {});
  make(R"({"recipe": "Float8CurrentScaling", "amax_history_len": 7})")->plan(ctx);
  ASSERT_EQ(ctx.no_effects().size(), 1u);
  EXPECT_EQ(ctx.no_effects()[0].text, "fp8.amax_history_len changes nothing: Float8CurrentScaling remembers nothing");
  EXPECT_EQ(ctx.capturables().size(), 1u);
}

TEST_F(Fp8Plugin, says_what_of_a_mixture_stays_in_16_bits) {
  ModelFacts facts;
  facts.mixture = {8, 2, 3, 1000};
  PlanRecord ctx(facts, {});
  make("{}")->plan(ctx);
  ASSERT_FALSE(ctx.costs().empty());
  EXPECT_NE(ctx.costs().back().text.find("products of experts stay in 16 bits"), std::string::npos);
}

TEST_F(Fp8Plugin, is_made_for_a_plan_where_there_is_no_gpu) {
  host.services.device = at::Device(at::kCUDA, 77);
  EXPECT_EQ(error_of([&] { make(); }), "");
}

TEST_F(Fp8Plugin, refuses_older_gpus_with_what_to_do) {
  EXPECT_EQ(fp8::refusal({0, 89, 12080}, false), "");
  EXPECT_EQ(fp8::refusal({0, 100, 13000}, false), "");
  for (const bool blocks : {false, true})
    EXPECT_EQ(fp8::refusal({1, 80, 13000}, blocks),
              "precision/fp8: GPU 1 is sm_80, and products in 8 bits need sm_89 or newer (Ada, Hopper, Blackwell). Use "
              "\"bf16\": {\"enabled\": true} instead of \"fp8\"");
}

TEST_F(Fp8Plugin, refuses_scales_of_blocks_on_other_gpus_than_hopper_and_on_an_old_cuda) {
  EXPECT_EQ(fp8::refusal({0, 90, 12090}, true), "");
  const std::string remedy = ". Use \"recipe\": \"Float8CurrentScaling\" or \"DelayedScaling\", or \"bf16\"";
  for (const int arch : {89, 100, 120})
    EXPECT_EQ(fp8::refusal({2, arch, 13000}, true), concat("precision/fp8: GPU 2 is sm_", arch,
                                                           ", and cuBLASLt multiplies with scales of blocks "
                                                           "(Float8BlockScaling) on sm_90 alone (H100, H200)",
                                                           remedy));
  EXPECT_EQ(
      fp8::refusal({0, 90, 12080}, true),
      "precision/fp8: the CUDA runtime is 12.8, and products with scales of blocks (Float8BlockScaling) need 12.9 "
      "or newer" +
          remedy);
}

// --- whole runs

TEST(Fp8Run, is_off_unless_it_is_enabled_and_not_together_with_bf16) {
  const TempFolder folder;
  const auto loss = [&](const std::string& name, const std::string& section) {
    return figure(run_threads(precision_config(folder, name, section + R"("train_steps": 1)"), 1), 0, "loss");
  };
  const double float32 = loss("float32", "");
  EXPECT_EQ(loss("off", R"("fp8": {"enabled": false},)"), float32);
  EXPECT_NE(loss("on", R"("fp8": {"enabled": true},)"), float32);
  const std::string both = R"("bf16": {"enabled": true}, "fp8": {"enabled": true})";
  EXPECT_NE(error_of([&] { run_threads(precision_config(folder, "both", both), 1); }).find("both choose the precision"),
            std::string::npos);
}

// How far a figure of all steps is from another run's, relative.
double distance(const RunResult& run, const RunResult& other, const char* name) {
  double sum = 0;
  for (size_t step = 0; step < other.metrics.size(); ++step)
    sum += std::abs(figure(run, step, name) / figure(other, step, name) - 1);
  return sum;
}

// Layers that are cut have the scales of whole ones: what differs is how bfloat16 rounds sums of parts. So two ranks
// are no further from one than 8 bits are from float32, as long as no step has amplified it (four steps); and in the
// first, whose operands are rounded alike, far nearer. Blocks of parts that are no multiples of 128 are other ones.
TEST(Fp8Run, tensor_parallel_ranks_follow_one_and_repeat_their_bits) {
  const TempFolder folder;
  const std::string model =
      R"("train_steps": 4, "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 64,
    "num_attention_heads": 4, "vocab_size": 96, "max_position_embeddings": 32}})";
  const RunResult float32 = run_threads(precision_config(folder, "float32", model), 1);
  const auto run = [&](const std::string& name, const std::string& options, int ranks, const std::string& cut) {
    const std::string tensor = ranks > 1 ? concat(R"(, "tensor_parallel": {"size": )", ranks, cut, "}") : "";
    return run_threads(
        precision_config(folder, name, model + R"(, "fp8": {"enabled": true, )" + options + "}" + tensor), ranks);
  };
  int number = 0;
  for (const std::string options :
       {R"("amax_history_len": 4)", R"("recipe": "Float8CurrentScaling")", R"("recipe": "Float8BlockScaling")"}) {
    SCOPED_TRACE(options);
    const bool whole_tensors = options.find("Block") == std::string::npos;
    const RunResult one = run(concat("one", ++number), options, 1, "");
    for (const std::string cut : {"", R"(, "sequence_parallel": true)"}) {
      SCOPED_TRACE(cut);
      const RunResult two = run(concat("two", ++number), options, 2, cut),
                      again = run(concat("two", ++number), options, 2, cut);
      ASSERT_EQ(two.metrics.size(), 4u);
      for (const char* name : {"loss", "grad_norm"}) {
        EXPECT_LT(distance(two, one, name), distance(one, float32, name)) << name;
        for (size_t step = 0; step < two.metrics.size(); ++step)
          EXPECT_EQ(figure(two, step, name), figure(again, step, name)) << step << " " << name;
      }
      const double first = figure(one, 0, "loss");
      if (whole_tensors) {
        EXPECT_LT(4 * std::abs(figure(two, 0, "loss") - first), std::abs(figure(float32, 0, "loss") - first));
      }
    }
  }
}

// What a planner counts products and casts by.
TEST_F(Fp8Plugin, says_what_its_products_are_computed_with) {
  RunFacts run;
  for (const auto& [device, recipe, type] :
       {std::tuple("cpu", "DelayedScaling", "products.float32"),
        std::tuple("cuda", "DelayedScaling", "products.float8.read_once.takes_operands"),
        std::tuple("cuda", "Float8BlockScaling", "products.float8.of_blocks.read_once.takes_operands"),
        std::tuple("cuda", "Float8CurrentScaling", "products.float8.takes_operands"),
        std::tuple("cuda", R"(DelayedScaling", "fp8_wgrad": false, "_": ")", "products.float8.read_once"),
        std::tuple("cuda", R"(DelayedScaling", "keep_weights": true, "_": ")",
                   "products.float8.read_once.weights_kept.takes_operands")}) {
    run.device = device;
    PlanRecord ctx({}, run);
    make(concat(R"({"recipe": ")", recipe, R"("})"))->plan(ctx);
    ASSERT_EQ(ctx.offers().size(), 1u);
    EXPECT_EQ(ctx.offers()[0].text, type);
  }
}

// Scales are those of all ranks and stay within a step: two ranks with a micro-batch each have the bits of one.
TEST(Fp8Run, losses_do_not_depend_on_how_many_ranks_share_the_rows) {
  const TempFolder folder;
  const std::string fp8 = R"("train_steps": 4, "fp8": {"enabled": true}, "gradient_accumulation_steps": )";
  const RunResult one = run_threads(precision_config(folder, "one", fp8 + "2"), 1),
                  two = run_threads(precision_config(folder, "two", fp8 + "1"), 2);
  for (size_t step = 0; step < 4; ++step) EXPECT_EQ(figure(one, step, "loss"), figure(two, step, "loss")) << step;
}

// What runs again is cast again, with the scales of its step.
TEST(Fp8Run, recompute_gives_the_same_bits) {
  const TempFolder folder;
  const auto run = [&](const std::string& name, const std::string& more) {
    return run_threads(precision_config(folder, name, R"("train_steps": 4, "fp8": {"enabled": true})" + more), 1);
  };
  const RunResult kept = run("kept", ""), again = run("again", R"(, "activation_checkpointing": "full")");
  for (size_t step = 0; step < 4; ++step) {
    EXPECT_EQ(figure(kept, step, "loss"), figure(again, step, "loss")) << step;
    EXPECT_EQ(figure(kept, step, "grad_norm"), figure(again, step, "grad_norm")) << step;
  }
}

// Losses as those of 16 bits. The bound of the norms was 5 % until current scaling came to 5.4 % at step 9; 2^-3 is
// what e5m2 rounds one value by at most: an order of size, and no bound for a norm after nine steps.
TEST(Fp8Run, every_recipe_and_format_follows_float32) {
  const TempFolder folder;
  const RunResult float32 = run_threads(precision_config(folder, "float32", ""), 1);
  int number = 0;
  for (const char* options :
       {R"("recipe": "Float8CurrentScaling")", R"("recipe": "Float8BlockScaling")", R"("fp8_format": "E4M3")",
        R"("amax_history_len": 4, "amax_compute_algo": "most_recent", "margin": 1)", R"("fp8_wgrad": false)"}) {
    SCOPED_TRACE(options);
    const std::string section = concat(R"("fp8": {"enabled": true, )", options, "}");
    expect_same_curve(run_threads(precision_config(folder, concat("run", ++number), section), 1), float32, 0.005,
                      0.125);
  }
}

}  // namespace
}  // namespace drivetrain::test
