// What every attention shares: the abilities that it offers in `plan`, and the refusals that follow from them.
#include <drivetrain/attention.h>

#include <algorithm>
#include <utility>

#include <drivetrain/plan_context.h>
#include <drivetrain/step_context.h>

#include <drivetrain/toolkit/dtype_name.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace attention_function {

std::vector<std::string> names_of(const std::set<at::ScalarType>& types) {
  std::vector<std::string> names;
  for (const at::ScalarType type : types) names.push_back(dtype_name(type));
  return names;
}

// What is wrong with the tensors themselves; empty if nothing.
std::string shape_problem(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const std::string found = concat("found q ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes());
  if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4)
    return "q, k and v must be [batch, sequence, heads, head size]; " + found;
  if (k.sizes() != v.sizes()) return "k and v must have one shape; " + found;
  if (q.size(0) != k.size(0) || q.size(3) != k.size(3)) return "q and k must agree in batch and head size; " + found;
  if (q.numel() == 0 || k.numel() == 0) return "q, k and v must not be empty; " + found;
  if (q.size(2) % k.size(2) != 0) return "key/value heads must divide the query heads; " + found;
  if (q.scalar_type() != k.scalar_type() || q.scalar_type() != v.scalar_type())
    return concat("q, k and v must have one dtype; found ", q.scalar_type(), ", ", k.scalar_type(), ", ",
                  v.scalar_type());
  return {};
}

// What is wrong with the arguments whatever the implementation; empty if nothing.
std::string argument_problem(const AttentionArgs& args, const at::Tensor& q, const at::Tensor& k) {
  if (!(args.scale > 0)) return concat("scale must be above 0; found ", args.scale);
  if (!(args.dropout >= 0 && args.dropout < 1)) return concat("dropout must be in [0, 1); found ", args.dropout);
  if (args.window < 0) return concat("window must not be negative; found ", args.window);
  if (!(args.softcap >= 0)) return concat("softcap must not be negative; found ", args.softcap);
  const auto& ends = args.varlen.cu_seqlens;
  if (ends.empty()) return {};
  if (q.size(1) != k.size(1) || args.q_offset != 0)
    return concat("cu_seqlens wants as many keys as queries and q_offset 0; found q ", q.sizes(), ", k ", k.sizes(),
                  ", q_offset ", args.q_offset);
  return cu_seqlens_problem(ends, q.size(0), q.size(1));
}

// What the arguments ask for beyond the abilities; empty if nothing.
std::string ability_problem(const AttentionAbilities& can, const at::Tensor& q, const at::Tensor& k,
                            const AttentionArgs& args) {
  if (!can.head_sizes.empty() && !can.head_sizes.contains(q.size(3)))
    return concat("head size ", q.size(3), " is not supported (", join(can.head_sizes), ")");
  if (!can.dtypes.contains(q.scalar_type()))
    return concat("dtype ", dtype_name(q.scalar_type()), " is not supported (", join(names_of(can.dtypes)), ")");
  if (!can.gqa && q.size(2) != k.size(2)) return "fewer key/value heads than query heads are not supported";
  if (!can.non_causal && !args.causal) return "causal = false is not supported";
  if (!can.dropout && args.dropout > 0) return concat("dropout ", args.dropout, " is not supported (0 only)");
  if (!can.window && args.window > 0) return concat("window ", args.window, " is not supported (0 only)");
  if (!can.softcap && args.softcap > 0) return concat("softcap ", args.softcap, " is not supported (0 only)");
  if (!can.q_offset && args.q_offset != 0) return concat("q_offset ", args.q_offset, " is not supported");
  if (!can.varlen && !args.varlen.cu_seqlens.empty())
    return "several sequences in one row (cu_seqlens) are not supported";
  return {};
}

}  // namespace attention_function

Attention::~Attention() = default;

AttentionMemory Attention::memory(const AttentionShape& shape) const { return attention_memory(shape); }

void Attention::check(const char* name, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const AttentionArgs& args) const {
  using namespace attention_function;
  std::string problem = shape_problem(q, k, v);
  if (problem.empty()) problem = argument_problem(args, q, k);
  if (!problem.empty()) throw fail(ErrorCode::config, name, ": ", problem);
  const AttentionAbilities can = abilities();
  problem = ability_problem(can, q, k, args);
  if (!problem.empty()) throw fail(ErrorCode::config, name, ": ", problem, can.remedy.empty() ? "" : "; ", can.remedy);
}

void Attention::plan(PlanContext& ctx) {
  using namespace attention_function;
  const AttentionAbilities can = abilities();
  const ModelFacts& model = ctx.model();
  const auto refuse = [&](const std::string& problem) {
    ctx.refuse(problem + (can.remedy.empty() ? "" : "; " + can.remedy));
  };
  if (model.head_dim.known() && !can.head_sizes.empty() && !can.head_sizes.contains(model.head_dim))
    refuse(concat("head size ", model.head_dim, " is not supported (", join(can.head_sizes), ")"));
  if (!can.gqa && model.num_query_groups.known() && model.num_query_groups != model.num_attention_heads)
    refuse(concat("num_query_groups ", model.num_query_groups, " of ", model.num_attention_heads,
                  " heads is not supported (all heads only)"));
  if (!can.dropout && model.attention_dropout > 0 && ctx.run().training)
    refuse(concat("attention_dropout ", model.attention_dropout, " is not supported (0 only)"));
  else if (model.attention_dropout >= 1 && ctx.run().training)
    ctx.refuse(concat("attention_dropout is ", model.attention_dropout, "; it must be below 1"));
  if (!can.window && !model.windowed.empty())
    refuse(concat("the model's window of ", model.windowed.front().window, " keys is not supported"));
  if (!can.softcap && model.attention_softcap > 0)
    refuse(concat("the model's softcap of attention scores, ", model.attention_softcap, ", is not supported"));
  if (!can.varlen && ctx.run().documents.known() && ctx.run().documents)
    refuse("the dataset puts several documents into a row (cu_seqlens), which is not supported");
  const std::vector<std::string> types = names_of(can.dtypes);
  if (std::find(types.begin(), types.end(), ctx.run().compute_dtype) == types.end())
    refuse(concat("dtype ", ctx.run().compute_dtype, " is not supported (", join(types), ")"));

  const std::pair<const char*, bool> offered[] = {{"returns_lse", can.returns_lse},
                                                  {"varlen", can.varlen},
                                                  {"window", can.window},
                                                  {"softcap", can.softcap},
                                                  {"q_offset", can.q_offset},
                                                  {"non_causal", can.non_causal},
                                                  {"deterministic", can.deterministic},
                                                  {"partial_keys", can.partial_keys},
                                                  {"partial_heads", can.partial_heads}};
  for (const auto& [ability, yes] : offered)
    if (yes) ctx.offer(std::string("attention.") + ability);
}

}  // namespace drivetrain
