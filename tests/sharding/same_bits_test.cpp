// The bitwise table: under one number of ranks, micro-batches, `reduce_every` and clipping, every strategy gives the
// losses, norms, evaluations and final weights of every other byte for byte, whether the local communicator's ranks
// share values or each has its own. DRIVETRAIN_ALL_SETTINGS=1 trains under every setting; otherwise one rank, and
// gradients that are not clipped, come with three micro-batches that are summed one by one alone, and on at most two
// ranks.
#include <gtest/gtest.h>

#include <bit>
#include <cinttypes>
#include <cstdlib>
#include <filesystem>
#include <set>

#include <drivetrain/random.h>

#include <drivetrain/testkit/kit/poisoned_memory.h>
#include <drivetrain/testkit/kit/temp_folder.h>
#include "sharding/strategies.h"
#include "support/run_program.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

// Nobody's bits may hang on what memory held before, nor on values after their storage was freed.
PoisonedMemory poisoned;

struct Setting {
  int ranks;
  int accumulation;
  int reduce_every;  // 0: all micro-batches of a step
  double clipping;
  const char* precision;           // the section to switch on; empty: float32
  const char* communication = "";  // communication_data_type; empty: the gradients'
};

std::string name_of(const Setting& s) {
  return concat(s.ranks, "_ranks_", s.accumulation, "_micro_batches_reduce_every_", s.reduce_every,
                s.clipping > 0 ? "_clipped" : "_unclipped", *s.precision ? "_" : "", s.precision,
                *s.communication ? "_summed_in_" : "", s.communication);
}

Value config_of(const Setting& s, const std::string& sections, bool share) {
  // Vectors of 36 to 108 elements, far below a block of the norm; matrices of 1.3 to 4 blocks; tied embedding; one
  // position table of less than a block.
  Value config = parse_json(R"({
    "train_steps": 3, "seed": 11, "train_micro_batch_size_per_gpu": 2, "eval_interval": 2, "monitors": "jsonl",
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 36, "num_attention_heads": 3, "ffn_hidden_size": 75,
              "vocab_size": 97, "max_position_embeddings": 16}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 12}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}}})",
                            "test");
  config.set("gradient_accumulation_steps", s.accumulation);
  config.set("reduce_every", s.reduce_every);
  config.set("gradient_clipping", s.clipping);
  config.set("communicator", Value::Object{{"type", "local"}, {"params", Value::Object{{"share", share}}}});
  if (*s.communication) config.set("communication_data_type", s.communication);
  // A loss scale so large that the first update overflows and is left out.
  if (s.precision == std::string("fp16"))
    config.set("fp16", Value::Object{{"enabled", true}, {"initial_scale_power", 21}, {"hysteresis", 1}});
  else if (*s.precision)
    config.set(s.precision, Value::Object{{"enabled", true}});
  const Value more = parse_json(sections, "strategy");
  for (const Value::Member& member : more.members()) config.set(member.key, member.value);
  return config;
}

std::string hexadecimal(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, number);
  return text;
}

// A norm is null where an update was left out.
std::string bits_of(const Value& figure) {
  if (figure.is_null() || figure.is_bool()) return figure.to_json();
  return hexadecimal(std::bit_cast<uint64_t>(figure.as_double()));
}

// Everything of a run that must not depend on the strategy, bit by bit: one line per step, then a digest of the
// weights.
std::string bits_of(const RunResult& run) {
  std::string bits;
  for (const Value& line : run.metrics) {
    for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "valid_loss", "loss_scale", "skipped"})
      if (const Value* figure = line.find(key)) bits += concat(key, " ", bits_of(*figure), " ");
    bits += "\n";
  }
  return bits + "weights " + hexadecimal(hash_name(file_bytes(run.weights_file()))) + "\n";
}

struct Finding {
  std::string bits, digest;
  double last_norm = 0;
};

Finding train(const Setting& s, const ShardingStrategy& strategy, bool share) {
  const TempFolder folder;
  Value config = config_of(s, strategy.sections, share);
  config.set("output_dir", folder.path("run"));
  const RunResult run = run_threads(config, s.ranks);
  EXPECT_EQ(run.metrics.size(), 3u);
  EXPECT_NE(file_bytes(run.folder + "/resolved.json").find(concat("\"data_parallel/", strategy.plugin, "\"")),
            std::string::npos);
  const std::string bits = bits_of(run);
  return {bits, hexadecimal(hash_name(bits)), run.metrics.back().find("grad_norm")->as_double()};
}

class SameBits : public testing::TestWithParam<Setting> {};

TEST_P(SameBits, whatever_is_shared_out) {
  const Setting& s = GetParam();
  const Finding wanted = train(s, sharding_strategies().front(), true);
  EXPECT_GT(wanted.last_norm, s.clipping) << "nothing is clipped";
  EXPECT_EQ(wanted.bits.find("null") != std::string::npos, s.precision == std::string("fp16"))
      << "an update is left out";
  std::printf("  %s\n", name_of(s).c_str());
  for (const ShardingStrategy& strategy : sharding_strategies()) {
    if (s.ranks % strategy.ranks != 0) continue;
    for (const bool share : {true, false}) {
      if (share && s.clipping == 0) continue;  // where values lie and whether they are clipped meet nowhere
      SCOPED_TRACE(concat(strategy.name, ", share ", share ? "true" : "false"));
      Finding found;
      ASSERT_NO_THROW(found = train(s, strategy, share));
      std::printf("    %s  %-44s %s\n", found.digest.c_str(), strategy.name, share ? "shared values" : "own values");
      EXPECT_EQ(found.bits, wanted.bits);
    }
  }
}

std::vector<Setting> settings() {
  const bool all = std::getenv("DRIVETRAIN_ALL_SETTINGS") != nullptr;
  std::vector<Setting> list;
  for (const int ranks : {1, 2, 4})
    for (const double clipping : {0.3, 0.0}) {
      if (all || (ranks > 1 && clipping > 0)) list.push_back({ranks, 1, 0, clipping, ""});
      for (const int reduce_every : {0, 1})
        if (all || (ranks > 1 && clipping > 0) || (ranks < 4 && reduce_every == 1))
          list.push_back({ranks, 3, reduce_every, clipping, ""});
    }
  list.push_back({2, 3, 2, 0.3, ""});  // the last sum is of fewer micro-batches
  list.push_back({3, 3, 1, 0.3, ""});  // parts that no power of two makes
  for (const char* precision : {"bf16", "fp16"})
    for (const int reduce_every : {0, 1}) list.push_back({2, 3, reduce_every, 0.3, precision});
  for (const char* precision : {"", "bf16"})
    for (const int reduce_every : {0, 1}) list.push_back({2, 3, reduce_every, 0.3, precision, "bf16"});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Table, SameBits, testing::ValuesIn(settings()),
                         [](const auto& info) { return name_of(info.param); });

const ShardingStrategy& named(const std::string& name) {
  for (const ShardingStrategy& strategy : sharding_strategies())
    if (name == strategy.name) return strategy;
  throw std::logic_error("no strategy " + name);
}

// A digest is worth something only if what may change the bits does.
TEST(SameBitsTable, tells_settings_apart) {
  std::set<std::string> seen;
  const Setting all[] = {{2, 1, 0, 0.3, ""}, {2, 1, 0, 0, ""},       {2, 3, 0, 0.3, ""},
                         {2, 3, 1, 0.3, ""}, {2, 3, 0, 0.3, "bf16"}, {2, 3, 0, 0.3, "", "bf16"}};
  for (const Setting& s : all) seen.insert(train(s, named("zero stage 1"), true).digest);
  EXPECT_EQ(seen.size(), std::size(all));
}

TEST(SameBitsTable, needs_no_reduce_every_without_accumulation) {
  for (const char* name : {"ddp", "zero stage 3", "fsdp"})
    EXPECT_EQ(train({2, 1, 1, 0.3, ""}, named(name), true).bits, train({2, 1, 0, 0.3, ""}, named("ddp"), true).bits)
        << name;
}

TEST(SameBitsTable, is_the_same_for_all_micro_batches_by_their_number) {
  for (const char* name : {"zero stage 1", "zero stage 3"})
    EXPECT_EQ(train({2, 3, 3, 0.3, ""}, named(name), true).bits, train({2, 3, 0, 0.3, ""}, named(name), true).bits)
        << name;
}

// Without the key, each plugin does what needs the least memory: the stages that cut gradients sum every micro-batch.
TEST(SameBitsTable, leaves_reduce_every_to_the_strategy_where_it_is_not_given) {
  const auto bits = [](const char* name, std::optional<int> reduce_every) {
    const TempFolder folder;
    Value config = config_of({2, 3, reduce_every.value_or(0), 0.3, ""}, named(name).sections, true);
    if (!reduce_every) config.erase("reduce_every");
    config.set("output_dir", folder.path("run"));
    return bits_of(run_threads(config, 2));
  };
  for (const char* name : {"ddp", "zero stage 1"}) EXPECT_EQ(bits(name, {}), bits(name, 0)) << name;
  for (const char* name : {"zero stage 2", "zero stage 3", "fsdp"}) EXPECT_EQ(bits(name, {}), bits(name, 1)) << name;
}

}  // namespace
}  // namespace drivetrain::test
