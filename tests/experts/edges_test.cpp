// Runs of mixtures at their edges: rows of several documents, accumulation, all tokens to a few experts and none to the
// others.
#include <gtest/gtest.h>

#include <ATen/ops/isfinite.h>

#include <fstream>

#include "experts/mixture_runs.h"
#include "support/memory_checkpoint.h"

namespace drivetrain::test {
namespace {

TEST(ExpertEdges, rows_of_several_documents_have_the_numbers_of_one_process) {
  const TempFolder folder;
  for (int i = 0; i < 60; ++i)
    std::ofstream(folder.path(concat("d", i, ".txt"))) << i << std::string(size_t(2 + i % 11), char('a' + i % 26));
  Value config = config_with(concat(R"("dataset": {"type": "packed", "params": {"seq_length": 16, "window": 30,
    "source": {"type": "text", "params": {"files": [")",
                                    folder.path(), R"("], "seq_length": 16}}}})"));
  config = with_model(config, R"({"vocab_size": 257})");
  const Trained one = train_config(config, 1);
  // The ends of rows have no labels: ranks with other positions have other numbers of labels that count.
  const char* const tp = R"("tensor_parallel": {"size": 2, "make_vocab_size_divisible_by": 1,
                                                "sequence_parallel": true})";
  const char* const cp = R"("context_parallel": {"type": "ulysses", "params": {"size": 2}})";
  for (const auto& [split_by, ranks] : std::vector<std::pair<std::string, int>>{
           {split(2, kDdp), 2}, {split(2, kZero3), 4}, {split(1, tp), 2}, {split(2, cp), 4}}) {
    SCOPED_TRACE(concat(split_by, " on ", ranks));
    Value split_config = config;
    const Value sections = parse_json("{" + split_by + "}", "sections");
    for (const Value::Member& m : sections.members()) split_config.set(m.key, m.value);
    expect_same(train_config(split_config, ranks), one);
  }
}

// Without losses for balance, which are means over a micro-batch.
TEST(ExpertEdges, accumulation_changes_no_number) {
  const auto trained = [](int64_t rows, const std::string& sections, int ranks) {
    Value config = config_with(concat(sections, R"(, "train_micro_batch_size_per_gpu": )", rows));
    return train_config(with_model(config, R"({"router_aux_loss_coef": 0, "router_z_loss_coef": 0})"), ranks);
  };
  const Trained at_once = trained(4, split(2, kDdp), 2);  // of 8 rows
  for (const char* owner : {kDdp, kZero1, kFsdp}) expect_same_training(trained(1, split(2, owner), 2), at_once);
  expect_same_training(trained(8, kDdp, 1), at_once);
}

// Routers without a preference choose the experts of the smallest ids, which all lie on the first rank.
TEST(ExpertEdges, all_tokens_to_one_rank_and_experts_that_never_get_one) {
  const auto part = [](const std::string& sections, int ranks, const Checkpoint* from, int64_t last) {
    Value config = config_with(R"("param_groups": [{"roles": "router", "lr": 0, "weight_decay": 0}], )" + sections);
    config.set("monitors", false);
    return run_part(config, ranks, from, last);
  };
  RunPart begun = part(kDdp, 1, nullptr, 2);
  int routers = 0;
  for (auto& [name, tensor] : begun.end.tensors_)
    if (name.find("router") != std::string::npos) tensor.zero_(), ++routers;
  ASSERT_GE(routers, 3);
  const RunPart one = part(kDdp, 1, &begun.end, 4);
  for (const auto& [owner, ep, ranks] :
       std::vector<std::tuple<const char*, int64_t, int>>{{kDdp, 4, 4}, {kZero3, 2, 4}, {kFsdp, 2, 2}}) {
    SCOPED_TRACE(concat(owner, ", ep ", ep));
    const RunPart found = part(split(ep, owner), ranks, &begun.end, 4);
    ASSERT_EQ(found.figures.size(), 2u);  // steps 3 and 4
    for (const auto& [step, figures] : one.figures) {
      EXPECT_NEAR(found.figures.at(step).first, figures.first, 4e-6 * figures.first) << "step " << step;
      EXPECT_NEAR(found.figures.at(step).second, figures.second, 2e-5 * figures.second) << "step " << step;
    }
    for (const auto& [name, tensor] : found.end.tensors_) {
      EXPECT_TRUE(at::isfinite(tensor).all().item<bool>()) << name;
      EXPECT_TRUE(at::allclose(tensor, one.end.tensors_.at(name), 0, 4e-5)) << name;
    }
  }
}

// Without decay a weight without a gradient stays as it is, and nobody waits for it.
TEST(ExpertEdges, experts_that_never_get_a_token_have_no_gradient_however_long) {
  const auto part = [](const std::string& sections, int ranks, const Checkpoint* from, int64_t last) {
    Value config = config_with(concat(R"("optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0}},
      "param_groups": [{"roles": "router", "lr": 0}], "train_steps": 60, )",
                                      sections));
    config.set("monitors", false);
    return run_part(config, ranks, from, last);
  };
  RunPart begun = part(kDdp, 1, nullptr, 0);
  for (auto& [name, tensor] : begun.end.tensors_)
    if (name.find("router") != std::string::npos) tensor.zero_();
  for (const auto& [owner, ranks] : std::vector<std::pair<const char*, int>>{{kDdp, 2}, {kZero3, 2}}) {
    const RunPart found = part(split(2, owner), ranks, &begun.end, 60);
    EXPECT_EQ(found.figures.size(), 60u);
    int weights = 0;
    for (const auto& [name, before] : begun.end.tensors_) {
      if (!name.ends_with(".experts.fc.weight") && !name.ends_with(".experts.proj.weight")) continue;
      const at::Tensor after = found.end.tensors_.at(name);
      const int64_t of_expert = before.size(0) / 8;
      EXPECT_TRUE(after.narrow(0, 2 * of_expert, 6 * of_expert).equal(before.narrow(0, 2 * of_expert, 6 * of_expert)))
          << name << ", " << owner;
      EXPECT_FALSE(after.narrow(0, 0, 2 * of_expert).equal(before.narrow(0, 0, 2 * of_expert))) << name;
      ++weights;
    }
    EXPECT_GE(weights, 6) << "of three layers";
  }
}

// Micro-batches are of one row everywhere, so that means over them and over ranks are those of one process.
TEST(ExpertEdges, figures_of_routers_are_means_over_all_ranks_and_stages) {
  const auto figures = [](const std::string& sections, int ranks) {
    const TempFolder folder;
    Value config = config_with(sections);
    config.set("output_dir", folder.path("run"));
    std::map<std::string, double> found;
    for (const Value& line : run_threads(config, ranks, with_mistakes()).metrics)
      for (const Value::Member& m : line.members())
        if (m.key.find(".router.") != std::string::npos)
          found[concat("step ", line.find("step")->as_int(), " ", m.key)] = m.value.as_double();
    return found;
  };
  const std::map<std::string, double> one = figures("", 1);
  EXPECT_EQ(one.size(), 4u * 3u * 4u) << "load, entropy and two losses of each mixture in each step";
  EXPECT_GT(one.at("step 1 block.3.mlp.router.load"), 1);
  for (const auto& [sections, ranks] : std::vector<std::pair<std::string, int>>{
           {kDdp, 4}, {split(2, kZero3), 4}, {R"("pipeline": {"type": "one_f_one_b", "params": {"stages": 2}})", 2}}) {
    SCOPED_TRACE(sections);
    const std::map<std::string, double> found = figures(sections, ranks);
    ASSERT_EQ(found.size(), one.size());
    for (const auto& [name, value] : one) EXPECT_NEAR(found.at(name), value, 1e-4 * value) << name;
  }
}

}  // namespace
}  // namespace drivetrain::test
