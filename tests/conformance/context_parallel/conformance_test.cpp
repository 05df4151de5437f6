// The conformance suite of context_parallel: every installed plugin alone, by two and four ranks, and the two of this
// tree together, with every installed attention that offers what they need.
#include <gtest/gtest.h>

#include <drivetrain/testkit/context_parallel/suite.h>
#include <drivetrain/testkit/kit/poisoned_memory.h>
#include <drivetrain/testkit/kit/rank_threads.h>
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

PoisonedMemory poisoned;

// Those that have what a plan asks of an attention are all of this tree's; outside ones are told apart by their own
// suite.
std::vector<std::string> attentions() { return installed_plugins().names(Attention::kKind); }

void run_with_every_attention(ContextTrial trial) {
  for (const std::string& attention : attentions()) {
    trial.attention = attention;
    run_context_parallel_suite(trial);
  }
}

TEST(ContextParallelConformance, every_plugin_by_two_and_four_ranks) {
  for (const std::string& name : installed_plugins().names(ContextParallel::kKind))
    run_suite({.kind = ContextParallel::kKind, .name = name, .train = train_by_threads});
}

TEST(ContextParallelConformance, heads_around_a_ring) {
  run_with_every_attention({.parts = {{"ulysses", 2}, {"ring", 2}}});
}

// The suite asks a plugin itself what it can do and takes a refusal for the rest: here is what it may not give up.
struct Offer {
  const char* name;
  bool gqa, window, softcap, dropout, non_causal;  // where the attention inside has them
};
constexpr Offer kOffers[] = {{"ring", true, true, true, false, false}, {"ulysses", true, true, true, true, true}};

TEST(ContextParallelConformance, plugins_offer_what_the_attention_inside_has) {
  for (const Offer& offer : kOffers)
    for (const std::string& attention : attentions()) {
      const ContextTrial trial{.parts = {{offer.name, 2}},
                               .attention = attention,
                               .shape = {"offer", 1, 16, 16, 4, 4, 8, context_args(true, 0, 0)}};
      SCOPED_TRACE(trial.text());
      ContextRank rank(trial, 0, make_memory_store());
      EXPECT_EQ(rank.plan(), "");
      rank.build();
      const AttentionAbilities inside = rank.inner()->abilities(), can = rank.attention().abilities();
      EXPECT_EQ(can.gqa, inside.gqa && offer.gqa);
      EXPECT_EQ(can.window, inside.window && offer.window);
      EXPECT_EQ(can.softcap, inside.softcap && offer.softcap);
      EXPECT_EQ(can.dropout, inside.dropout && offer.dropout);
      EXPECT_EQ(can.non_causal, inside.non_causal && offer.non_causal);
      EXPECT_EQ(can.dtypes, inside.dtypes);
      EXPECT_EQ(can.head_sizes, inside.head_sizes);
    }
}

TEST(ContextParallelConformance, more_ranks_of_a_ring_than_share_heads) {
  ContextTrial trial{.parts = {{"ulysses", 2}, {"ring", 3}}};
  trial.shape = {"six ranks", 2, 36, 36, 6, 2, 4, context_args(true, 0, 0)};
  const ContextOutcome outcome = run_context(trial);
  for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
  EXPECT_LE(context_deviation(trial, outcome), 1e-12);
}

}  // namespace
}  // namespace drivetrain::test
