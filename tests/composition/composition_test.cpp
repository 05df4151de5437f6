// Thirty random configs, right beyond the golden ones:
// any number of ranks, both attentions, the model's blocks, hand-written ones and plain float64 formulas agree.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "composition/compare_runs.h"

namespace drivetrain::test {
namespace {

constexpr int kCases = 30;

// A case and its runs, which several tests look at. A run is made once, but where a test asks for another of the same.
class CaseRuns {
 public:
  explicit CaseRuns(int index) : c(draw_case(index)), batches_(folder_.path("batches.safetensors")) {
    write_batches(c, batches_);
  }

  const RunResult& initial(int ranks) {
    return once(
        concat("initial", ranks), [&] { return initial_config(c, ranks, batches_); }, ranks);
  }
  const RunResult& train(int ranks, const std::string& attention, bool fused_block = true, int time = 1) {
    const auto config = [&] {
      Value config = train_config(c, ranks, attention, batches_, start());
      if (!fused_block) config.set("fused_block", false);
      return config;
    };
    return once(concat(attention, ranks, fused_block ? "" : "_own_blocks", "_", time), config, ranks);
  }
  std::string config_text() { return train_config(c, 1, "standard", batches_, start()).to_json(); }

  Weights start_weights() {
    return read_weights(c.from_folder ? start() + "/model.safetensors" : initial(1).weights_file());
  }

  const Case c;

 private:
  // The folder a case trains from; empty: the config's own initial values.
  std::string start() {
    const std::string moved = folder_.path("moved");
    if (!c.from_folder) return {};
    if (!std::filesystem::exists(moved)) write_moved_folder(c, initial(1).final_folder(), moved);
    return moved;
  }

  template <class MakeConfig>
  const RunResult& once(const std::string& name, const MakeConfig& make_config, int ranks) {
    if (const auto made = runs_.find(name); made != runs_.end()) return made->second;
    Value config = make_config();
    config.set("output_dir", folder_.path(name));
    return runs_[name] = run_threads(config, ranks);
  }

  const TempFolder folder_;
  const std::string batches_;
  std::map<std::string, RunResult> runs_;
};

class RandomConfig : public ::testing::TestWithParam<int> {
 protected:
  RandomConfig() : runs(of(GetParam())), c(runs.c) {}

  CaseRuns& runs;
  const Case& c;

 private:
  static CaseRuns& of(int index) {
    at::set_num_threads(1);
    static std::map<int, CaseRuns> all;
    return all.try_emplace(index, index).first->second;
  }
};

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void expect_agreement(const Distance& d, const char* what) { EXPECT_LE(d.largest(), 1) << what << d.where; }

// Of flash attention and of the model's own blocks.
int some_ranks(const Case& c) { return 1 << c.index % 3; }

TEST_P(RandomConfig, agrees_over_ranks_attentions_and_with_plain_formulas) {
  SCOPED_TRACE(runs.config_text());
  const PlainRun plain = train_plainly(c, runs.start_weights());
  const PlainRun one = figures_of(runs.train(1, "standard")), two = figures_of(runs.train(2, "standard"));
  const PlainRun four = figures_of(runs.train(4, "standard")), flash = figures_of(runs.train(some_ranks(c), "flash"));
  const PlainRun own_blocks = figures_of(runs.train(some_ranks(c), "standard", false));
  expect_agreement(distance(one, plain, plain), "one rank and plain formulas");
  expect_agreement(distance(flash, plain, plain), "flash and plain formulas");
  expect_agreement(distance(own_blocks, plain, plain), "the model's blocks and plain formulas");
  expect_agreement(distance(two, one, plain), "two ranks and one");
  expect_agreement(distance(four, one, plain), "four ranks and one");
  if (!c.same_micro_batches) return;
  // The micro-batches, and so their losses, are the same; only the order of a few float64 additions is not.
  EXPECT_NEAR(two.steps[0].loss, one.steps[0].loss, 1e-14 * one.steps[0].loss);
  EXPECT_NEAR(four.steps[0].loss, one.steps[0].loss, 1e-14 * one.steps[0].loss);
}

TEST_P(RandomConfig, gives_the_same_bits_when_run_twice) {
  const char* attention = c.index % 2 ? "standard" : "flash";
  const bool fused_block = c.index / 2 % 2 == 0;
  const RunResult& a = runs.train(some_ranks(c), attention, fused_block);
  const RunResult& b = runs.train(some_ranks(c), attention, fused_block, 2);
  ASSERT_EQ(a.metrics.size(), b.metrics.size());
  for (size_t i = 0; i < a.metrics.size(); ++i)
    for (const char* figure : {"loss", "grad_norm", "lr", "tokens"})
      EXPECT_EQ(a.metrics[i].find(figure)->to_json(), b.metrics[i].find(figure)->to_json())
          << figure << " of step " << i + 1;
  EXPECT_TRUE(bytes_of(a.weights_file()) == bytes_of(b.weights_file()));
}

TEST_P(RandomConfig, starts_from_the_same_weights_on_any_number_of_ranks) {
  const std::string one = bytes_of(runs.initial(1).weights_file());
  EXPECT_GT(one.size(), 1000u);
  EXPECT_TRUE(bytes_of(runs.initial(2).weights_file()) == one);
  EXPECT_TRUE(bytes_of(runs.initial(4).weights_file()) == one);
}

TEST(RandomConfigs, cover_what_the_golden_ones_leave_out) {
  std::map<std::string, int> seen;
  for (int i = 0; i < kCases; ++i) {
    const Case c = draw_case(i);
    ++seen[c.shape.gpt2 ? "GPT-2" : c.shape.qkv_bias ? "Qwen2" : "Llama"];
    ++seen[c.shape.tied ? "tied" : "untied"];
    ++seen[c.shape.groups < c.shape.heads ? "groups" : "no groups"];
    ++seen[c.shape.hidden % 2 ? "odd width" : "even width"];
    ++seen[c.labels_in_file ? "masked labels" : "all labels"];
    ++seen[c.from_folder ? "from a folder" : "from the seed"];
    ++seen[c.clip > 0 ? "clipping" : "no clipping"];
    ++seen[c.decay_all ? "decay of all" : "decay of matrices"];
    ++seen[c.same_micro_batches ? "same micro-batches" : "other micro-batches"];
    ++seen["schedule " + c.schedule.type];
    ++seen["accumulation " + std::to_string(c.accumulation.at(4))];
  }
  EXPECT_EQ(seen.size(), 3u + 2 * 8 + 4 + 3);
  for (const auto& [what, count] : seen) EXPECT_GE(count, 3) << what;
}

// Says whether the mistake means anything for the case.
struct Mistake {
  const char* what;
  std::function<bool(const Case&)> matters;
  std::function<void(Case&)> make;
};

const Mistake kMistakes[] = {
    {"clipping forgotten", [](const Case& c) { return c.clip > 0; }, [](Case& c) { c.clip = 0; }},
    {"another beta2", [](const Case&) { return true; }, [](Case& c) { c.beta2 = 0.99; }},
    {"decay on other tensors", [](const Case& c) { return c.weight_decay > 0; },
     [](Case& c) { c.decay_all = !c.decay_all; }},
    {"rotary base 1 % off", [](const Case& c) { return !c.shape.gpt2; }, [](Case& c) { c.shape.rotary_base *= 1.01; }},
    {"another label", [](const Case& c) { return *c.labels_KGS.const_data_ptr<int64_t>() != -100; },
     [](Case& c) {
       int64_t& label = *c.labels_KGS.mutable_data_ptr<int64_t>();
       label = (label + 1) % c.shape.vocab;
     }},
};

// Tolerances are worth something only if wrong formulas lie outside of them.
class SampledConfig : public RandomConfig {};

TEST_P(SampledConfig, shows_a_wrong_formula) {
  const Weights weights = runs.start_weights();
  const PlainRun right = train_plainly(c, weights);
  for (const Mistake& mistake : kMistakes) {
    if (!mistake.matters(c)) continue;
    Case wrong = draw_case(c.index);
    mistake.make(wrong);
    EXPECT_GT(distance(train_plainly(wrong, weights), right, right).largest(), 1.5) << mistake.what;
  }
}

INSTANTIATE_TEST_SUITE_P(BeyondTheGoldens, RandomConfig, ::testing::Range(0, kCases));
INSTANTIATE_TEST_SUITE_P(BeyondTheGoldens, SampledConfig, ::testing::Range(0, kCases, 5));

}  // namespace
}  // namespace drivetrain::test
