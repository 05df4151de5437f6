#include <drivetrain/testkit/context_parallel/suite.h>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/attend.h>

#include <drivetrain/testkit/kit/decorators.h>
#include <drivetrain/testkit/kit/equal_tensors.h>
#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/kit/rank_threads.h>
#include <drivetrain/testkit/kit/stop.h>

namespace drivetrain::test {

AttentionArgs context_args(bool causal, int64_t window, double dropout, std::vector<RowRange> head_rows) {
  AttentionArgs args = attention_args(causal, window);
  args.dropout = dropout;
  args.heads = head_rows;
  args.key = {7, 3, hash_name("block.0.attn"), 5, std::move(head_rows)};
  return args;
}

namespace {

AttentionArgs document_args(std::vector<int64_t> cu_seqlens, double dropout = 0, int64_t window = 0) {
  AttentionArgs args = context_args(true, window, dropout);
  args.varlen.cu_seqlens = std::move(cu_seqlens);
  return args;
}

AttentionArgs softcap_args(int64_t window) {
  AttentionArgs args = context_args(true, window, 0);
  args.softcap = 0.5;
  return args;
}

std::vector<AttentionCase> context_cases() {
  return {
      {"causal", 2, 16, 16, 4, 4, 8, context_args(true, 0, 0)},
      {"one row, odd head size", 1, 48, 48, 5, 5, 3, context_args(true, 0, 0)},
      {"grouped, heads that four do not divide", 2, 32, 32, 6, 2, 5, context_args(true, 0, 0)},
      {"grouped, key heads that two do not divide", 1, 16, 16, 6, 3, 4, context_args(true, 0, 0)},
      {"one key head", 2, 16, 16, 7, 1, 8, context_args(true, 0, 0)},
      {"three heads", 2, 16, 16, 3, 3, 4, context_args(true, 0, 0)},
      {"longer than a kernel's block", 1, 528, 528, 4, 2, 8, context_args(true, 0, 0)},
      {"not causal", 2, 16, 16, 4, 2, 8, context_args(false, 0, 0)},
      {"window", 2, 32, 32, 4, 4, 8, context_args(true, 6, 0)},
      {"window that reaches over a piece", 1, 48, 48, 4, 2, 4, context_args(true, 21, 0)},
      {"window of one", 1, 16, 16, 4, 4, 4, context_args(true, 1, 0)},
      {"window as long as the sequence", 1, 16, 16, 4, 4, 4, context_args(true, 16, 0)},
      {"documents, window", 2, 32, 32, 4, 2, 8, document_args({0, 5, 7, 30, 32, 33, 50, 64}, 0, 9)},
      {"softcap", 1, 16, 16, 4, 2, 8, softcap_args(0)},
      {"softcap, window", 1, 32, 32, 4, 4, 4, softcap_args(11)},
      {"dropout", 2, 16, 16, 6, 2, 4, context_args(true, 0, 0.25)},
      {"dropout, heads that tensor parallelism left", 2, 16, 16, 4, 4, 4,
       context_args(true, 0, 0.25, {{3, 1}, {8, 3}})},
      {"documents", 2, 32, 32, 4, 2, 8, document_args({0, 5, 7, 30, 32, 33, 50, 64})},
      {"a document over all chunks but one, short ones", 1, 48, 48, 4, 4, 3, document_args({0, 43, 44, 45, 48})},
      {"documents that are the chunks", 1, 32, 32, 4, 4, 4, document_args({0, 4, 8, 12, 16, 20, 24, 28, 32})},
      {"documents, dropout", 2, 16, 16, 4, 2, 4, document_args({0, 3, 16, 21, 32}, 0.25)},
  };
}

bool context_declares(const AttentionAbilities& can, const AttentionCase& c, at::ScalarType dtype) {
  return (can.gqa || c.G == c.H) && (can.window || c.args.window == 0) && (can.softcap || c.args.softcap == 0) &&
         (can.non_causal || c.args.causal) && (can.dropout || c.args.dropout == 0) &&
         (can.varlen || c.args.varlen.cu_seqlens.empty()) && can.dtypes.contains(dtype) &&
         (can.head_sizes.empty() || can.head_sizes.contains(c.D));
}

AttentionArgs scaled_args(const AttentionCase& c) {
  AttentionArgs args = c.args;
  args.scale = 1 / std::sqrt(static_cast<double>(c.D));
  return args;
}

// The same by one rank: by the formula in float64, or, where numbers are drawn, by the attention itself.
AttentionResult whole_result(const ContextTrial& trial) {
  const AttentionCase& c = trial.shape;
  const AttentionInputs x = attention_inputs(c, trial.dtype);
  if (c.args.dropout == 0) return attention_reference(x.q, x.k, x.v, x.dout, scaled_args(c));
  const Host host;
  const auto attention = installed_plugins().make<Attention>(trial.attention, "{}", host.services);
  return run_attention(*attention, x.q, x.k, x.v, x.dout, scaled_args(c));
}

}  // namespace

ContextOutcome run_context(const ContextTrial& trial) {
  const AttentionCase& c = trial.shape;
  const AttentionInputs x = attention_inputs(c, trial.dtype);
  ContextOutcome outcome;
  const auto like = [](const at::Tensor& t) { return at::zeros(t.sizes(), t.options()); };
  AttentionResult& whole = outcome.whole;
  whole = {like(x.q), at::zeros({c.B, c.H, c.S}, at::kDouble), like(x.q), like(x.k), like(x.v)};
  std::mutex mutex;
  outcome.errors = run_context_ranks(trial, [&](ContextRank& rank, int64_t) {
    {
      const std::lock_guard lock(mutex);
      outcome.declared = context_declares(rank.attention().abilities(), c, trial.dtype);
    }
    const AttentionResult here = rank.attend_here(x, scaled_args(c));
    const std::lock_guard lock(mutex);
    const at::Tensor ids = position_ids(rank.positions({{0, c.S}}, c.args.varlen.cu_seqlens), at::kCPU);
    whole.out.index_copy_(1, ids, here.out);
    whole.dq.index_copy_(1, ids, here.dq);
    whole.dk.index_copy_(1, ids, here.dk);
    whole.dv.index_copy_(1, ids, here.dv);
    outcome.lse = rank.attention().abilities().returns_lse;
    if (outcome.lse) whole.lse.index_copy_(2, ids, here.lse.to(at::kDouble));
  });
  return outcome;
}

double context_deviation(const ContextTrial& trial, const ContextOutcome& outcome) {
  const AttentionResult wanted = whole_result(trial), &found = outcome.whole;
  const auto distance = [](const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor w = b.to(at::kDouble).contiguous(), f = a.to(at::kDouble).contiguous();
    const double *x = f.const_data_ptr<double>(), *y = w.const_data_ptr<double>();
    double most = 0;
    for (int64_t i = 0; i < w.numel(); ++i) {
      const double d = std::abs(x[i] - y[i]) / std::max(1.0, std::abs(y[i]));
      most = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(most, d);
    }
    return most;
  };
  double most = std::max({distance(found.out, wanted.out), distance(found.dq, wanted.dq), distance(found.dk, wanted.dk),
                          distance(found.dv, wanted.dv)});
  if (outcome.lse) most = std::max(most, distance(found.lse, wanted.lse));
  return most;
}

namespace {

// Ranks that share out heads need one each; which of a trial's do, only its plugins know.
bool has_too_few_heads(const ContextTrial& trial, const ContextOutcome& outcome) {
  return trial.shape.H < trial.ranks() && outcome.errors[0].find("query heads cannot be divided") != std::string::npos;
}

// Not declared is refused, by whoever of the wrapped attentions says so first; ranks may hear of each other's refusal.
void expect_refused(const std::vector<std::string>& errors) {
  bool named = false;
  for (const std::string& error : errors) {
    EXPECT_FALSE(error.empty());
    named |= error.find(concat(ContextParallel::kKind, "/")) == 0;
  }
  EXPECT_TRUE(named) << errors[0];
}

void check_against_whole(ContextTrial trial) {
  for (const AttentionCase& c : context_cases())
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      trial.shape = c, trial.dtype = dtype;
      SCOPED_TRACE(trial.text());
      const ContextOutcome outcome = run_context(trial);
      if (has_too_few_heads(trial, outcome)) continue;
      if (!outcome.declared) {
        left_out(c.what,
                 concat("not among the abilities of the attention that it makes of attention/", trial.attention));
        expect_refused(outcome.errors);
        continue;
      }
      for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
      EXPECT_LE(context_deviation(trial, outcome), attention_tolerance(dtype));
    }
}

// 16 bits on the way: as near as one rank with 16 bits is.
void check_16_bits(ContextTrial trial) {
  trial.shape = {"16 bits", 2, 64, 64, 4, 2, 16, context_args(true, 0, 0)};
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    trial.dtype = dtype;
    SCOPED_TRACE(trial.text());
    const ContextOutcome outcome = run_context(trial);
    for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
    EXPECT_EQ(outcome.whole.dk.scalar_type(), dtype);
    EXPECT_LE(context_deviation(trial, outcome), attention_tolerance(dtype));
  }
}

void check_context_gives_same_bits(ContextTrial trial) {
  trial.shape = {"", 2, 160, 160, 4, 2, 16, context_args(true, 0, 0)};
  trial.dtype = at::kFloat;
  SCOPED_TRACE(trial.text());
  const AttentionResult first = run_context(trial).whole;
  for (int i = 0; i < 3; ++i) {
    const AttentionResult again = run_context(trial).whole;
    EXPECT_TRUE(equal_tensors(again.out, first.out)) << "out";
    EXPECT_TRUE(equal_tensors(again.dq, first.dq)) << "dq";
    EXPECT_TRUE(equal_tensors(again.dk, first.dk)) << "dk";
    EXPECT_TRUE(equal_tensors(again.dv, first.dv)) << "dv";
  }
}

// Several forwards before their backwards, of layers of different sizes, last one first: nothing that a layer keeps is
// overwritten by the next one, and the graph that autograd keeps is enough.
void check_layers_in_flight(ContextTrial trial) {
  trial.shape = {"layers", 2, 32, 32, 4, 4, 8, context_args(true, 0, 0)};
  SCOPED_TRACE(trial.text());
  const auto errors = run_context_ranks(trial, [&](ContextRank& rank, int64_t) {
    struct InFlight {
      AttentionInputs here;
      at::Tensor out;
      AttentionResult alone;
    };
    std::vector<InFlight> layers;
    for (const int64_t G : {4, 1, 2}) {
      const AttentionCase c{"", 2, 32, 32, 4, G, 8 * G, context_args(true, 0, 0)};
      const AttentionInputs whole = attention_inputs(c);
      InFlight layer{rank.slice(whole), {}, rank.attend_here(whole, scaled_args(c))};
      for (at::Tensor* x : {&layer.here.q, &layer.here.k, &layer.here.v}) x->set_requires_grad(true);
      layers.push_back(layer);
    }
    for (InFlight& layer : layers) {
      AttentionArgs args = context_args(true, 0, 0);
      args.scale = 1 / std::sqrt(static_cast<double>(layer.here.q.size(3)));
      layer.out = attend(rank.shared_attention(), layer.here.q, layer.here.k, layer.here.v, args);
    }
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      layer->out.backward(layer->here.dout);
      EXPECT_TRUE(equal_tensors(layer->out, layer->alone.out));
      EXPECT_TRUE(equal_tensors(layer->here.q.grad(), layer->alone.dq));
      EXPECT_TRUE(equal_tensors(layer->here.k.grad(), layer->alone.dk));
      EXPECT_TRUE(equal_tensors(layer->here.v.grad(), layer->alone.dv));
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Every position is on one rank, in ascending order, as many on each; also of positions that were cut before.
void check_positions(ContextTrial trial) {
  trial.shape = {"positions", 1, 48, 48, 4, 4, 4, context_args(true, 0, 0)};
  SCOPED_TRACE(trial.text());
  const int64_t n = trial.ranks();
  for (const std::vector<RowRange>& all :
       {std::vector<RowRange>{{0, 48}}, {{3, 17}, {40, 31}}, {{100, 1}, {200, 7}, {300, 40}}}) {
    const at::Tensor wanted = position_ids(all, at::kCPU);
    std::vector<std::vector<int64_t>> of_rank(static_cast<size_t>(n));
    const auto errors = run_context_ranks(trial, [&](ContextRank& rank, int64_t r) {
      const at::Tensor ids = position_ids(rank.positions(all), at::kCPU);
      of_rank[static_cast<size_t>(r)].assign(ids.const_data_ptr<int64_t>(),
                                             ids.const_data_ptr<int64_t>() + ids.numel());
      EXPECT_TRUE(rank.positions({}).empty());
    });
    std::vector<int64_t> together;
    for (const auto& ids : of_rank) {
      EXPECT_EQ(static_cast<int64_t>(ids.size()), 48 / n);
      EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
      together.insert(together.end(), ids.begin(), ids.end());
    }
    std::sort(together.begin(), together.end());
    EXPECT_EQ(at::IntArrayRef(together),
              at::IntArrayRef(wanted.const_data_ptr<int64_t>(), static_cast<size_t>(wanted.numel())));
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

void check_refused_lengths(ContextTrial trial) {
  trial.shape = {"odd length", 1, 49, 49, 4, 4, 4, context_args(true, 0, 0)};
  SCOPED_TRACE(trial.text());
  ContextRank rank(trial, 0, make_memory_store());
  const std::string refusals = rank.plan();
  EXPECT_NE(refusals.find("sequences of 49 positions"), std::string::npos) << refusals;
  EXPECT_NE(refusals.find("set seq_length to"), std::string::npos) << refusals;
  rank.build();  // plans are made without ranks that could wait for each other
  const std::string cut = error_of([&] { rank.positions({{0, 49}}); });
  EXPECT_NE(cut.find("49 positions cannot be cut into"), std::string::npos) << cut;
}

void check_one_rank(ContextTrial trial) {
  for (ContextPart& part : trial.parts) part.size = 1;
  trial.shape = {"one rank", 1, 9, 9, 2, 2, 4, context_args(true, 0, 0)};
  ContextRank rank(trial, 0, make_memory_store());
  EXPECT_EQ(rank.plan(), "");
  rank.build();
  rank.attach();
  EXPECT_FALSE(rank.wraps());
  EXPECT_EQ(rank.cuts(), 0u);
}

using ContextCheck = void (*)(ContextTrial);
constexpr std::pair<const char*, ContextCheck> kContextChecks[] = {
    {"pieces_together_are_the_whole", check_against_whole},
    {"16_bits_are_as_near_as_on_one_rank", check_16_bits},
    {"gives_the_same_bits_twice", check_context_gives_same_bits},
    {"layers_in_flight_do_not_disturb_each_other", check_layers_in_flight},
    {"every_position_is_on_one_rank", check_positions},
    {"lengths_that_do_not_fit_are_refused", check_refused_lengths},
    {"one_rank_is_left_alone", check_one_rank},
};

}  // namespace

Suite context_parallel_suite() {
  Suite suite;
  for (const auto& [name, check] : kContextChecks)
    suite.push_back({name, [check = check](const Subject& subject) {
                       for (const int64_t ranks : {2, 4})
                         for (const std::string& attention : installed_plugins().names(Attention::kKind))
                           check({.parts = {{subject.name, ranks, subject.options}}, .attention = attention});
                     }});
  suite.push_back(state_survives_a_stop(2, true));
  suite.push_back(decorators_compose(2, true));
  return suite;
}

void run_context_parallel_suite(const ContextTrial& trial) {
  for (const auto& [name, check] : kContextChecks) check(trial);
}

}  // namespace drivetrain::test
