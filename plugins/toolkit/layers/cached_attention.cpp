#include <drivetrain/toolkit/layers/cached_attention.h>

#include <ATen/ops/empty.h>

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

// Queries that begin at position `past`, over keys from position 0 to that of the last query.
struct NewQueries {
  const Attention& attention;
  const AttentionArgs& args;
  const bool takes_offset;

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t past) const {
    if (past == 0) return attention.forward(q, k, v, args).out;
    return takes_offset ? at_once(q, k, v, past) : one_by_one(q, k, v, past);
  }

 private:
  // The first key that a query at `position` sees.
  int64_t first_key(int64_t position) const {
    return args.window > 0 ? std::max<int64_t>(position - args.window + 1, 0) : 0;
  }

  // Keys before the first query's window are left out: the distances to all others stay what they were.
  at::Tensor at_once(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t past) const {
    const int64_t first = first_key(past), count = k.size(1) - first;
    AttentionArgs shifted = args;
    shifted.q_offset = past - first;
    return attention.forward(q, k.narrow(1, first, count), v.narrow(1, first, count), shifted).out;
  }

  at::Tensor one_by_one(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t past) const {
    AttentionArgs unmasked = args;
    unmasked.causal = false, unmasked.window = 0;
    const auto one = [&](int64_t query) {
      const int64_t first = first_key(past + query), count = past + query + 1 - first;
      return attention.forward(q.narrow(1, query, 1), k.narrow(1, first, count), v.narrow(1, first, count), unmasked)
          .out;
    };
    if (q.size(1) == 1) return one(0);
    at::Tensor out = at::empty(q.sizes(), q.options());
    for (int64_t query = 0; query < q.size(1); ++query) out.narrow(1, query, 1).copy_(one(query));
    return out;
  }
};

void check(const std::string& name, const AttentionAbilities& can, const AttentionArgs& args) {
  if (!args.causal)
    throw fail(ErrorCode::config, name, ": attention that is not causal has no key/value cache: earlier positions ",
               "would see later ones");
  if (!args.varlen.cu_seqlens.empty())
    throw fail(ErrorCode::config, name, ": a key/value cache holds one document per row");
  if (!can.q_offset && !(can.partial_keys && can.non_causal))
    throw fail(ErrorCode::config, name, ": wanted an attention for new queries over cached keys (q_offset, or ",
               "partial_keys and non_causal), and this one offers neither",
               can.remedy.empty() ? "" : "\n   " + can.remedy);
}

}  // namespace

at::Tensor cached_attention(const Attention& attention, const std::string& name, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args, KeyValueCache& cache) {
  const AttentionAbilities can = attention.abilities();
  check(name, can, args);
  const auto [keys, values] = cache.append(name, k, v);
  const std::vector<int64_t>& past = cache.past();
  const NewQueries queries{attention, args, can.q_offset};
  const int64_t S = q.size(1);
  if (std::all_of(past.begin(), past.end(), [&](int64_t n) { return n == past.front(); }))
    return queries.attend(q, keys, values, past.front());
  at::Tensor out = at::empty(q.sizes(), q.options());
  for (int64_t b = 0; b < q.size(0); ++b) {
    const auto row = [&](const at::Tensor& x, int64_t count) { return x.narrow(0, b, 1).narrow(1, 0, count); };
    row(out, S).copy_(queries.attend(row(q, S), row(keys, past[b] + S), row(values, past[b] + S), past[b]));
  }
  return out;
}

}  // namespace drivetrain
