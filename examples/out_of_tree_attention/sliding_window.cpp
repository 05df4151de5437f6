// Attention over a window of keys, as loops over what each query sees. See README.md.
//
// Source: Beltagy et al. 2020, "Longformer", section 3.1 (sliding window); Dao et al. 2022, appendix B.2 (backward).
// Legend of attention.h: B batch, S queries, T keys, H heads, G key/value heads, D head size. A head of a row is one
// piece of work. Key heads are shared by query heads, so backward gives a whole group of them to one thread.
#include <drivetrain/attention.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/services.h>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace {

using namespace drivetrain;

// [B, N, X, D] with D contiguous.
template <class T>
struct Rows {
  T* data;
  int64_t row, position, head;
  explicit Rows(const at::Tensor& t)
      : data(static_cast<T*>(t.data_ptr())), row(t.stride(0)), position(t.stride(1)), head(t.stride(2)) {}
  T* at(int64_t b, int64_t s, int64_t h) const { return data + b * row + s * position + h * head; }
};

// Keys [first, last) that query `s` sees.
struct Seen {
  int64_t first, last;
};
Seen seen_by(int64_t s, int64_t T, const AttentionArgs& args) {
  const int64_t here = s + args.q_offset;
  const int64_t first = args.window > 0 ? here - args.window + 1 : 0;
  const int64_t last = args.causal ? here + 1 : args.window > 0 ? here + args.window : T;
  const int64_t begin = std::clamp<int64_t>(first, 0, T);
  return {begin, std::max(begin, std::min(last, T))};
}

template <class T>
T dot(const T* a, const T* b, int64_t n) {
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <class T>
void add_scaled(T* to, const T* from, T scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += scale * from[i];
}

template <class T>
void forward_head(const AttentionState& state, const AttentionArgs& args, int64_t b, int64_t h) {
  const Rows<T> q(state.q), k(state.k), v(state.v), out(state.out);
  const int64_t S = state.q.size(1), T_keys = state.k.size(1), D = state.q.size(3), H = state.q.size(2);
  const int64_t g = h / (H / state.k.size(2));
  T* const lse = state.lse.data_ptr<T>() + (b * H + h) * S;
  std::vector<T> p;
  for (int64_t s = 0; s < S; ++s) {
    const Seen keys = seen_by(s, T_keys, args);
    T most = -std::numeric_limits<T>::infinity(), sum = 0;
    p.clear();
    for (int64_t t = keys.first; t < keys.last; ++t) {
      p.push_back(static_cast<T>(args.scale) * dot(q.at(b, s, h), k.at(b, t, g), D));
      most = std::max(most, p.back());
    }
    for (T& x : p) sum += x = std::exp(x - most);
    lse[s] = p.empty() ? -std::numeric_limits<T>::infinity() : most + std::log(sum);
    for (size_t i = 0; i < p.size(); ++i)
      add_scaled(out.at(b, s, h), v.at(b, keys.first + static_cast<int64_t>(i), g), p[i] / sum, D);
  }
}

// The query heads of group g: they add to the same dk and dv.
template <class T>
void backward_group(const at::Tensor& dout_BSHD, const AttentionState& state, const AttentionArgs& args,
                    const Tensors& gradients, int64_t b, int64_t g) {
  const Rows<T> q(state.q), k(state.k), v(state.v), out(state.out), dout(dout_BSHD);
  const Rows<T> dq(gradients[0]), dk(gradients[1]), dv(gradients[2]);
  const int64_t S = state.q.size(1), T_keys = state.k.size(1), D = state.q.size(3), H = state.q.size(2);
  const int64_t each = H / state.k.size(2);
  const T scale = static_cast<T>(args.scale);
  for (int64_t h = g * each; h < (g + 1) * each; ++h) {
    const T* const lse = state.lse.data_ptr<T>() + (b * H + h) * S;
    for (int64_t s = 0; s < S; ++s) {
      const Seen keys = seen_by(s, T_keys, args);
      const T delta = dot(dout.at(b, s, h), out.at(b, s, h), D);  // the softmax gradient's row sum
      for (int64_t t = keys.first; t < keys.last; ++t) {
        const T p = std::exp(scale * dot(q.at(b, s, h), k.at(b, t, g), D) - lse[s]);
        const T ds = scale * p * (dot(dout.at(b, s, h), v.at(b, t, g), D) - delta);
        add_scaled(dq.at(b, s, h), k.at(b, t, g), ds, D);
        add_scaled(dk.at(b, t, g), q.at(b, s, h), ds, D);
        add_scaled(dv.at(b, t, g), dout.at(b, s, h), p, D);
      }
    }
  }
}

class SlidingWindow : public Attention {
 public:
  struct Options {
    int64_t window = 0;
  };
  static OptionTable options() {
    return table<Options>()
        .field("window", &Options::window, "keys that a query sees, its own among them; 0: as the layer says")
        .at_least(0);
  }
  SlidingWindow(const Options& options, const Services&) : window_(options.window) {}

  AttentionAbilities abilities() const override {
    AttentionAbilities can;
    can.dtypes = {at::kFloat, at::kDouble};
    can.gqa = can.window = can.q_offset = can.returns_lse = can.partial_heads = true;
    can.partial_keys = window_ == 0;
    can.remedy = "use attention/standard";
    return can;
  }

  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override {
    check("attention/sliding_window", q, k, v, args);
    const AttentionState state{
        q, k, v, at::zeros(q.sizes(), q.options()), at::empty({q.size(0), q.size(2), q.size(1)}, q.options()), {}};
    const AttentionArgs own = with_window(args);
    const int64_t H = q.size(2);
    const bool wide = q.scalar_type() == at::kDouble;
    at::parallel_for(0, q.size(0) * H, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        wide ? forward_head<double>(state, own, i / H, i % H) : forward_head<float>(state, own, i / H, i % H);
    });
    return state;
  }

  Tensors backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const override {
    const auto like = [](const at::Tensor& t) { return at::zeros(t.sizes(), t.options()); };
    const Tensors gradients = {like(state.q), like(state.k), like(state.v)};
    AttentionState dense = state;
    dense.lse = state.lse.contiguous();  // a caller may have merged it
    const AttentionArgs own = with_window(args);
    const int64_t G = state.k.size(2);
    const bool wide = state.q.scalar_type() == at::kDouble;
    at::parallel_for(0, dout.size(0) * G, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        wide ? backward_group<double>(dout, dense, own, gradients, i / G, i % G)
             : backward_group<float>(dout, dense, own, gradients, i / G, i % G);
    });
    return gradients;
  }

 private:
  AttentionArgs with_window(AttentionArgs args) const {
    if (window_ > 0) args.window = args.window > 0 ? std::min(args.window, window_) : window_;
    return args;
  }

  const int64_t window_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Attention, "sliding_window", SlidingWindow)
