#include <drivetrain/testkit/expert_parallel/suite.h>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/decorators.h>
#include <drivetrain/testkit/kit/rank_threads.h>
#include <drivetrain/testkit/kit/stop.h>

namespace drivetrain::test {
namespace {

// Differences relative to the tensor's largest element.
void expect_same_rows(const at::Tensor& given, const at::Tensor& wanted, double tolerance, const std::string& what) {
  ASSERT_EQ(given.sizes(), wanted.sizes()) << what;
  if (wanted.numel() == 0) return;
  const at::Tensor found = given.to(at::kDouble);
  const double largest = wanted.abs().max().item<double>(), difference = (found - wanted).abs().max().item<double>();
  EXPECT_LE(difference, tolerance * std::max(largest, 1e-3)) << what << ", largest " << largest;
}

// The whole gradient from all ranks' rows, each of which one rank has.
at::Tensor assembled_experts(const std::vector<ExpertResult>& results, size_t i) {
  const ExpertGradient& first = results.front().gradients[i];
  at::Tensor whole = at::zeros(first.whole, at::TensorOptions(at::kDouble));
  int64_t rows = 0;
  for (const ExpertResult& result : results) {
    int64_t at = 0;
    for (const auto& range : result.gradients[i].ranges) {
      whole.narrow(0, range.first, range.count)
          .add_(result.gradients[i].local.narrow(0, at, range.count).to(at::kDouble));
      at += range.count;
    }
    rows += at;
  }
  EXPECT_EQ(rows, first.whole[0]) << first.name << ": rows held twice or by nobody";
  return whole;
}

struct ExpertChoices {
  const char* name;
  std::function<int64_t(int64_t rank, int64_t expert, int64_t micro)> rows;
};
const std::vector<ExpertChoices>& expert_choices() {
  static const std::vector<ExpertChoices> list = {
      {"uneven", [](int64_t r, int64_t e, int64_t m) { return (3 * e + 2 * r + m) % 5; }},
      {"all rows to one expert", [](int64_t r, int64_t e, int64_t m) { return e == 5 ? 3 + r + m : 0; }},
      {"a rank without rows of its own", [](int64_t r, int64_t e, int64_t) { return r == 1 ? 0 : e % 3; }},
      {"only its own experts", [](int64_t r, int64_t e, int64_t) { return e == r ? 4 : 0; }},
      {"no row at all", [](int64_t, int64_t, int64_t) { return 0; }},
  };
  return list;
}

void check_expert_choices(ExpertTrial trial) {
  for (const ExpertChoices& each : expert_choices()) {
    SCOPED_TRACE(each.name);
    trial.rows = each.rows;
    for (const int64_t nobodys : {0, 3}) {
      trial.nobodys = nobodys;
      check_expert_parallel(trial);
    }
  }
}

// Also a rank without a token.
void check_expert_tokens(ExpertTrial trial) {
  for (const bool frozen : {false, true})
    for (const int64_t fewer : {0, 13}) {
      trial.frozen = frozen;
      trial.tokens = [fewer](int64_t rank, int64_t micro) { return rank == 1 ? 13 - fewer : 17 + 3 * rank + micro; };
      check_expert_parallel(trial);
    }
}

void check_expert_types(ExpertTrial trial) {
  trial.rows = expert_choices()[0].rows;
  for (const char* activation : {"gelu", "swiglu"})
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      trial.activation = activation, trial.dtype = dtype;
      check_expert_parallel(trial);
    }
}

void check_expert_frozen(ExpertTrial trial) {
  trial.frozen = true;
  check_expert_choices(trial);
}

void check_expert_recomputed(ExpertTrial trial) {
  trial.recompute = true;
  check_expert_choices(trial);
}

using ExpertCheck = void (*)(ExpertTrial);
constexpr std::pair<const char*, ExpertCheck> kExpertChecks[] = {
    {"ranks_together_compute_what_one_does", check_expert_choices},
    {"tokens_go_to_all_their_experts", check_expert_tokens},
    {"float32_and_bfloat16_follow_float64", check_expert_types},
    {"frozen_experts_get_no_gradient", check_expert_frozen},
    {"forward_may_run_again", check_expert_recomputed},
};

ExpertTrial expert_trial_of(const Subject& subject, int64_t ranks) {
  Value options = subject.options;
  options.set("size", ranks);
  ExpertTrial trial;
  trial.name = subject.name, trial.ranks = ranks, trial.options = options.to_json();
  return trial;
}

// Whole runs of a small mixture on two ranks, or the least number that the plugin's options allow.
int run_ranks(const Subject& subject) {
  return static_cast<int>(2 % subject.rank_multiple == 0 ? 2 : subject.rank_multiple);
}
Value mixture() {
  return parse_json(R"({"model": {"type": "gpt", "params": {"family": "mixtral", "num_layers": 2, "hidden_size": 32,
    "num_attention_heads": 2, "num_query_groups": 2, "ffn_hidden_size": 24, "vocab_size": 37,
    "max_position_embeddings": 8, "num_experts": 8, "num_experts_per_tok": 2, "init_method_std": 0.3}}})",
                    "suite");
}
Value split_sections(const Subject& subject) {
  Value options = subject.options;
  options.set("size", run_ranks(subject));
  const Value section = Value::Object{{"type", subject.name}, {"params", options}};
  return Value::Object{{"data_parallel", "ddp"}, {subject.kind, section}};
}

void check_a_stop(const Subject& subject) {
  Value sections = mixture();
  const Value split = split_sections(subject);
  for (const Value::Member& m : split.members()) sections.set(m.key, m.value);
  expect_same_bits_after_a_stop(sections, run_ranks(subject), subject.train);
}

void check_decorators(const Subject& subject) {
  expect_decorators_compose({.sections = split_sections(subject), .common = mixture(), .ranks = run_ranks(subject)},
                            subject.train);
}

}  // namespace

void check_expert_parallel(const ExpertTrial& trial) {
  SCOPED_TRACE(text_of(trial));
  const double tolerance = trial.dtype == at::kDouble ? 1e-12 : trial.dtype == at::kFloat ? 200 * 0x1p-23 : 10 * 0x1p-8;
  const std::vector<ExpertResult> wanted = run_whole_experts(trial);
  const auto store = make_memory_store();
  std::vector<ExpertResult> found(static_cast<size_t>(trial.ranks));
  const std::vector<std::string> errors = on_threads(
      trial.ranks, [&](int64_t rank) { found[static_cast<size_t>(rank)] = run_expert_rank(trial, rank, store); });
  expect_no_errors(errors);
  if (std::any_of(errors.begin(), errors.end(), [](const std::string& error) { return !error.empty(); })) return;
  for (size_t rank = 0; rank < found.size(); ++rank)
    for (int64_t micro = 0; micro < kExpertMicros; ++micro) {
      SCOPED_TRACE(concat("rank ", rank, ", micro-batch ", micro));
      expect_same_rows(found[rank].y[micro], wanted[rank].y[micro], tolerance, "output");
      expect_same_rows(found[rank].dx[micro], wanted[rank].dx[micro], tolerance, "gradient of the rows");
      if (trial.tokens)
        expect_same_rows(found[rank].dweights[micro], wanted[rank].dweights[micro], 4 * 0x1p-23, "gradient of weights");
      expect_same_rows(found[rank].evaluated[micro], wanted[rank].evaluated[micro], tolerance, "output in evaluation");
    }
  const std::vector<ExpertGradient>& whole = wanted.front().gradients;
  ASSERT_EQ(found.front().gradients.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    ASSERT_EQ(found.front().gradients[i].name, whole[i].name);
    if (!trial.frozen) expect_same_rows(assembled_experts(found, i), whole[i].local, tolerance, whole[i].name);
  }
}

Suite expert_parallel_suite() {
  Suite suite;
  for (const auto& [name, check] : kExpertChecks)
    suite.push_back({name, [check = check](const Subject& subject) {
                       ASSERT_TRUE(4 % subject.rank_multiple == 0) << "the suite has 2 and 4 ranks";
                       for (const int64_t ranks : {2, 4})
                         if (ranks % subject.rank_multiple == 0) check(expert_trial_of(subject, ranks));
                     }});
  suite.push_back({"state_survives_a_stop", check_a_stop});
  suite.push_back({"decorators_compose", check_decorators});
  return suite;
}

}  // namespace drivetrain::test
