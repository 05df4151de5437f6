#include <algorithm>
#include <numeric>
#include <string>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "megatron.h"

namespace drivetrain::megatron {
namespace {

// What the model does not have needs not be cut.
void check_model(int64_t ranks, PlanContext& ctx) {
  const ModelFacts& m = ctx.model();
  int64_t common = 0;
  for (const Fact<int64_t>* size : {&m.num_attention_heads, &m.num_query_groups, &m.ffn_hidden_size})
    common = std::gcd(common, size->value_or(0));
  if (common == 0) return;
  const std::string remedy = concat(". Use a size of ", divisors_text(common));
  const auto check = [&](const Fact<int64_t>& count, const char* what) {
    if (count.known() && count % ranks != 0)
      ctx.refuse(concat("size ", ranks, " does not divide the model's ", count.value(), " ", what, remedy));
  };
  check(m.num_attention_heads, "attention heads (num_attention_heads)");
  if (m.num_query_groups.value_or(ranks) < ranks)
    ctx.refuse(concat("size ", ranks, " is more ranks than the model has key/value heads (num_query_groups ",
                      m.num_query_groups.value(), "): each rank needs one of its own", remedy));
  else
    check(m.num_query_groups, "key/value heads (num_query_groups)");
  check(m.ffn_hidden_size, "inner columns of the MLP (ffn_hidden_size)");
}

// Context parallelism has taken its share of a sequence before.
void check_sequence(int64_t ranks, PlanContext& ctx) {
  if (!ctx.run().seq_length.known()) return;
  const int64_t S = ctx.run().seq_length, others = ctx.run().position_ranks.value_or(1), parts = ranks * others;
  if (S % parts == 0) return;
  const std::string legal = S < parts ? concat(parts) : concat(S / parts * parts, " or ", (S / parts + 1) * parts);
  ctx.refuse(concat("sequence_parallel shares sequences of ", S, " tokens (seq_length) over ", ranks, " ranks",
                    others > 1 ? concat(" in each of ", others, " parts of context parallelism") : "",
                    ", and they do not divide. Use a seq_length of ", legal, ", or turn sequence_parallel off"));
}

// Experts are not cut.
void report_experts(const MegatronOptions& options, PlanContext& ctx) {
  if (ctx.model().mixture.experts == 0) return;
  ctx.cost(concat("experts are not cut over the ", options.ranks(), " ranks",
                  cuts_positions(options, ctx.run())
                      ? ", each of which computes with its own positions"
                      : ", which all compute the same; sequence_parallel gives each of them its part of the tokens"));
}

// Rows of padding take memory and time like others.
void report_padding(const MegatronOptions& options, PlanContext& ctx) {
  const int64_t vocabulary = ctx.model().vocab_size, step = options.ranks() * options.make_vocab_size_divisible_by;
  const int64_t padded = (vocabulary + step - 1) / step * step;
  if (padded - vocabulary <= vocabulary / 8) return;
  ctx.cost(concat("the vocabulary of ", vocabulary, " is padded to ", padded,
                  ", a multiple of size x make_vocab_size_divisible_by; less of the latter pads less"));
}

// Bytes a rank sends, by the usual count: of what is summed over R ranks, (R - 1) / R goes out once to be added and
// once to be spread.
void report_traffic(const MegatronOptions& options, PlanContext& ctx) {
  const RunFacts& run = ctx.run();
  const ModelFacts& m = ctx.model();
  if (!run.seq_length.known() || !run.micro_batch_size.known()) return;
  const double ranks = static_cast<double>(options.ranks()), out = (ranks - 1) / ranks;
  const double tokens = static_cast<double>(run.seq_length * run.micro_batch_size * run.accumulation.value_or(1)) /
                        static_cast<double>(run.position_ranks.value_or(1));
  const double layers = static_cast<double>(run.rank_layers.value_or(m.num_layers));
  const double activation = tokens * static_cast<double>(m.hidden_size) * run.compute_bytes * out;
  const double passes = run.training ? 2 : 1;
  const bool cuts = cuts_positions(options, run);
  const double again = cuts && !options.keep_gathered ? 2 : 0;
  ctx.traffic(kAxis, cuts ? "activations of blocks, gathered and reduced" : "activations of blocks, summed",
              layers * (4 * passes + again) * activation);
  ctx.traffic(kAxis, "embedding and output layer", (2 * passes) * activation);
}

// One gathered or summed activation at a time. What keep_gathered keeps is the units' to tell.
void report_memory(const MegatronOptions& options, PlanContext& ctx) {
  const RunFacts& run = ctx.run();
  const ModelFacts& m = ctx.model();
  if (!run.seq_length.known() || !run.micro_batch_size.known()) return;
  const double tokens =
      static_cast<double>(run.seq_length * run.micro_batch_size) / static_cast<double>(run.position_ranks.value_or(1));
  const double activation = tokens * static_cast<double>(m.hidden_size) * run.compute_bytes;
  ctx.memory(MemoryClass::buffers, "activations on their way between ranks", 2 * activation);
}

void report_keys_of_deepspeed(const MegatronOptions& o, PlanContext& ctx) {
  constexpr const char* kByModel = "the model says how its layers are cut";
  const auto idle = [&](bool given, const char* key, const char* why) {
    if (given) ctx.no_effect(concat("tensor_parallel.", key), why);
  };
  idle(o.autotp.tp_grain_size.has_value(), "tp.tp_grain_size", "the vocabulary has make_vocab_size_divisible_by");
  idle(o.dtype.has_value(), "dtype", "weights have the type of the precision");
  idle(o.tp_overlap_comm.value_or(false), "tp_overlap_comm", "sums are waited for where they are used");
  idle(o.preset_model.has_value(), "preset_model", kByModel);
  idle(!o.partition_config.is_null(), "partition_config", kByModel);
  idle(!o.injection_policy_tuple.is_null(), "injection_policy_tuple", kByModel);
  idle(o.keep_module_on_host.value_or(false), "keep_module_on_host", "a rank makes its own part of the weights");
  idle(o.replace_with_kernel_inject.value_or(false), "replace_with_kernel_inject", "it is for inference");
}

void report_keys_without_effect(const MegatronOptions& options, PlanContext& ctx) {
  report_keys_of_deepspeed(options, ctx);
  if (options.ranks() == 1) {
    if (options.sequence_parallel) ctx.no_effect("sequence_parallel", "size is 1");
    if (options.keep_gathered) ctx.no_effect("keep_gathered", "size is 1");
    return;
  }
  if (options.keep_gathered && !options.sequence_parallel)
    ctx.no_effect("keep_gathered", "without sequence_parallel nothing is gathered");
  if (options.sequence_parallel && !ctx.run().training)
    ctx.no_effect("sequence_parallel", "texts of any length are not shared evenly; it is for training");
}

}  // namespace

bool cuts_positions(const MegatronOptions& options, const RunFacts& run) {
  return options.ranks() > 1 && options.sequence_parallel && run.training;
}

void plan(const MegatronOptions& options, PlanContext& ctx) {
  ctx.capturable();
  report_keys_without_effect(options, ctx);
  const int64_t ranks = options.ranks();
  if (ranks == 1) return;
  ctx.claim_axis(kAxis, ranks, PlanContext::Reads::same, PlanContext::kTensorPlace);
  ctx.split_layers(ranks);
  ctx.need(
      "attention.partial_heads",
      "every rank has a part of the heads; a plugin that computes all heads alike, whatever their number, says so by "
      "AttentionAbilities::partial_heads");
  check_model(ranks, ctx);
  if (cuts_positions(options, ctx.run())) check_sequence(ranks, ctx);
  report_padding(options, ctx);
  report_experts(options, ctx);
  report_traffic(options, ctx);
  report_memory(options, ctx);
}

}  // namespace drivetrain::megatron
