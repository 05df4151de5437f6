#include "generate/cache_probe.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

// Of the longer text; the other one has a token less.
constexpr int64_t kLength = 4;
// Of the largest logit. Rounding to 16 bits stays below it, another position does not.
constexpr double kMostDifference = 0.03;

at::Tensor probe_tokens(int64_t vocab_size) {
  at::Tensor tokens = at::empty({2, kLength}, at::TensorOptions(at::kLong));
  for (int64_t i = 0; i < tokens.numel(); ++i) tokens.mutable_data_ptr<int64_t>()[i] = (7 * i + 1) % vocab_size;
  return tokens;
}

// The logits behind both texts, [2, V].
at::Tensor through_cache(Inference& model, const at::Tensor& tokens, GenerationCache& cache) {
  model.next_logits(tokens.narrow(1, 0, kLength - 1), cache);
  cache.advance({kLength - 1, kLength - 2});
  const at::Tensor last = at::stack({tokens[0][kLength - 1], tokens[1][kLength - 2]}).unsqueeze(1);
  return model.next_logits(last, cache);
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

}  // namespace

std::string why_no_cache(Inference& model) {
  const ModelFacts facts = model.model().facts();
  if (facts.max_position_embeddings < kLength) return concat("the model has fewer than ", kLength, " positions");
  const at::Tensor tokens = probe_tokens(facts.vocab_size);
  const auto cache = model.new_cache(2, kLength);
  at::Tensor cached;
  try {
    cached = through_cache(model, tokens, *cache);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::config) throw;
    return e.what();
  }
  if (!model.every_block_appended(*cache)) return "not every block of the model keeps keys and values there";
  const at::Tensor whole = model.logits(tokens).to(at::kFloat);
  const at::Tensor wanted = at::stack({whole[0][kLength - 1], whole[1][kLength - 2]});
  if (const double by = difference(cached.to(at::kFloat), wanted); by > kMostDifference)
    return concat("it gives other logits (by ", by, " of the largest)\n   a unit takes the positions of its columns ",
                  "from Batch::position_ids_BS, and sees other columns by attention alone");
  return "";
}

}  // namespace drivetrain
