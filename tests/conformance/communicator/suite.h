// What every communicator must do. communicator_suite() has ranks as threads; a plugin's test may call these functions,
// one a test, with the numbers of ranks that it can have and ranks of another kind (see ranks.h).
//
// Values are small integers, exact in every dtype, so collectives are compared with a local computation without
// tolerance; the order of additions is checked separately with uneven float32 values against the fixed tree.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include <drivetrain/testkit/communicator/failures.h>
#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

inline const std::vector<at::ScalarType>& summable() {
  static const std::vector<at::ScalarType> list = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong,
                                                   at::kInt,   at::kShort,  at::kChar,     at::kByte};
  return list;
}

template <class Body>
void with_type(at::ScalarType dtype, const Body& body) {
  switch (dtype) {
    case at::kFloat:
      return body(float{});
    case at::kDouble:
      return body(double{});
    case at::kBFloat16:
      return body(c10::BFloat16{});
    case at::kHalf:
      return body(c10::Half{});
    case at::kLong:
      return body(int64_t{});
    case at::kInt:
      return body(int32_t{});
    case at::kShort:
      return body(int16_t{});
    case at::kChar:
      return body(int8_t{});
    case at::kByte:
      return body(uint8_t{});
    case at::kBool:
      return body(bool{});
    default:
      FAIL() << "no type " << c10::toString(dtype);
  }
}

// Element i of rank r.
inline int64_t number(int64_t r, int64_t i, at::ScalarType dtype) {
  return (i * 7 + r * 3 + i / 5) % (dtype == at::kBool ? 2 : 5);
}

// Elements of slices that follow each other, asked for in their order: whose slice, and the element within it.
class Slices {
 public:
  explicit Slices(std::vector<int64_t> counts) : counts_(std::move(counts)) {}
  std::pair<int64_t, int64_t> operator()(int64_t element) {
    while (element - begin_ >= counts_[slice_]) begin_ += counts_[slice_++];
    return {static_cast<int64_t>(slice_), element - begin_};
  }
  int64_t total() const { return std::accumulate(counts_.begin(), counts_.end(), int64_t{0}); }

 private:
  const std::vector<int64_t> counts_;
  size_t slice_ = 0;
  int64_t begin_ = 0;
};

// Where buffers lie: private memory, the group's own, or one kind on each other rank.
enum class Place { own, shared, mixed };

struct Collectives {
  Rank& r;
  Group& g;
  at::ScalarType dtype;
  Place place;

  at::Tensor empty(int64_t n) const {
    const bool shared = place == Place::shared || (place == Place::mixed && g.rank() % 2 == 0);
    return shared ? g.allocate(n, dtype) : at::empty({n}, at::TensorOptions(dtype).device(r.services.device));
  }
  template <class Value>
  at::Tensor filled(int64_t n, const Value& value) const {
    at::Tensor t = empty(n);
    const at::Tensor host = t.device().is_cpu() ? t : at::empty({n}, at::TensorOptions(dtype));
    with_type(dtype, [&](auto zero) {
      using T = decltype(zero);
      T* data = host.mutable_data_ptr<T>();
      for (int64_t i = 0; i < n; ++i) data[i] = static_cast<T>(static_cast<float>(value(i)));
    });
    return t.copy_(host);
  }
  template <class Value>
  void expect(const at::Tensor& found, const char* call, const Value& value) const {
    const at::Tensor t = found.cpu();
    with_type(dtype, [&](auto zero) {
      using T = decltype(zero);
      const T* data = t.const_data_ptr<T>();
      for (int64_t i = 0; i < t.numel(); ++i)
        if (static_cast<float>(data[i]) != static_cast<float>(value(i))) {
          ADD_FAILURE() << call << " of " << t.numel() << " " << c10::toString(dtype) << " on rank " << g.rank()
                        << " of " << g.size() << ", place " << static_cast<int>(place) << ": element " << i << " is "
                        << static_cast<float>(data[i]) << ", wanted " << static_cast<float>(value(i));
          return;
        }
    });
  }

  int64_t total(int64_t i) const {
    int64_t sum = 0;
    for (int64_t p = 0; p < g.size(); ++p) sum += number(p, i, dtype);
    return sum;
  }

  void sums(int64_t n) const {
    const int64_t me = g.rank(), size = g.size();
    at::Tensor t = filled(n, [&](int64_t i) { return number(me, i, dtype); });
    g.all_reduce(t)->wait();
    expect(t, "all_reduce", [&](int64_t i) { return total(i); });

    at::Tensor in = filled(size * n, [&](int64_t i) { return number(me, i, dtype); });
    at::Tensor out = empty(n);
    g.reduce_scatter(out, in)->wait();
    expect(out, "reduce_scatter", [&](int64_t i) { return total(me * n + i); });
    out = in.narrow(0, me * n, n);
    g.reduce_scatter(out, in)->wait();
    expect(out, "reduce_scatter into its input", [&](int64_t i) { return total(me * n + i); });
  }

  void moves(int64_t n) const {
    const int64_t me = g.rank(), size = g.size();
    const at::Tensor in = filled(n, [&](int64_t i) { return number(me, i, dtype); });
    const auto gathered = [&](int64_t i) { return number(i / n, i % n, dtype); };
    at::Tensor out = empty(size * n);
    g.all_gather(out, in)->wait();
    expect(out, "all_gather", gathered);
    out = filled(size * n, [&](int64_t i) { return i / n == me ? number(me, i % n, dtype) : 1; });
    g.all_gather(out, out.narrow(0, me * n, n))->wait();
    expect(out, "all_gather from its output", gathered);

    const at::Tensor all = filled(size * n, [&](int64_t i) { return number(me, i, dtype); });
    out = empty(size * n);
    g.all_to_all(out, all)->wait();
    expect(out, "all_to_all", [&](int64_t i) { return number(i / n, me * n + i % n, dtype); });

    for (int64_t root = 0; root < size; ++root) {
      at::Tensor t = filled(n, [&](int64_t i) { return number(me, i, dtype); });
      g.broadcast(t, root)->wait();
      expect(t, "broadcast", [&](int64_t i) { return number(root, i, dtype); });
    }
  }

  // all_to_all with `count(from, to)` elements from one rank to another.
  template <class Count>
  void exchange(const char* what, const Count& count) const {
    const int64_t me = g.rank(), size = g.size();
    std::vector<int64_t> sent, received;
    for (int64_t p = 0; p < size; ++p) sent.push_back(count(me, p)), received.push_back(count(p, me));
    Slices in_slices(sent), out_slices(received);
    const auto value = [&](int64_t from, int64_t to, int64_t i) { return number(from + 5 * to, i, dtype); };
    const at::Tensor in = filled(in_slices.total(), [&](int64_t k) {
      const auto [to, i] = in_slices(k);
      return value(me, to, i);
    });
    at::Tensor out = filled(out_slices.total(), [](int64_t) { return 1; });
    g.all_to_all(out, in, received, sent)->wait();
    expect(out, what, [&](int64_t k) {
      const auto [from, i] = out_slices(k);
      return value(from, me, i);
    });
  }

  void exchanges(int64_t n) const {
    exchange("all_to_all with counts", [n](int64_t from, int64_t to) { return (from + 2 * to) % 3 * n; });
    exchange("all_to_all with equal counts", [n](int64_t, int64_t) { return n; });
    exchange("all_to_all to one rank", [n](int64_t from, int64_t to) { return to == 0 ? n + from : 0; });
    exchange("all_to_all from one rank", [n](int64_t from, int64_t to) { return from == 0 ? n + to : 0; });
  }

  // Around the ring, all at once: sends and receives of one batch do not wait for each other.
  void messages(int64_t n) const {
    const int64_t me = g.rank(), size = g.size(), next = (me + 1) % size, before = (me + size - 1) % size;
    const at::Tensor first = filled(n, [&](int64_t i) { return number(me, i, dtype); });
    const at::Tensor second = filled(n, [&](int64_t i) { return number(me + 1, i, dtype); });
    at::Tensor got_first = empty(n), got_second = empty(n);
    g.batch_begin();
    const WorkPtr works[] = {g.send(first, next), g.send(second, next), g.recv(got_first, before),
                             g.recv(got_second, before)};
    g.batch_end();
    for (const WorkPtr& work : works) work->wait();
    expect(got_first, "recv", [&](int64_t i) { return number(before, i, dtype); });
    expect(got_second, "second recv", [&](int64_t i) { return number(before + 1, i, dtype); });
    g.barrier();
  }
};

inline void check_collectives(int64_t ranks, std::vector<int64_t> counts, const std::vector<at::ScalarType>& dtypes) {
  expect_no_errors(run_ranks(ranks, [&](Rank& r) {
    const GroupPtr world = r.world();
    EXPECT_EQ(world->size(), ranks);
    EXPECT_EQ(world->rank(), r.rank());
    for (const Place place : {Place::own, Place::shared, Place::mixed})
      for (const at::ScalarType dtype : dtypes)
        for (const int64_t n : counts) {
          const Collectives c{r, *world, dtype, place};
          if (dtype != at::kBool) c.sums(n);
          c.moves(n);
          c.exchanges(n);
          if (ranks > 1) c.messages(n);
        }
  }));
}

inline void collectives_match_a_local_computation(const std::vector<int64_t>& sizes = {1, 2, 3, 4, 5, 8}) {
  std::vector<at::ScalarType> dtypes = summable();
  dtypes.push_back(at::kBool);
  for (const int64_t ranks : sizes) check_collectives(ranks, {0, 1, 3, 257}, dtypes);
}

inline void large_collectives_match_a_local_computation(const std::vector<int64_t>& sizes = {2, 5}) {
  for (const int64_t ranks : sizes) check_collectives(ranks, {300007}, {at::kFloat});
}

// ---- the fixed tree ----

// Values whose sum depends on the order.
inline float uneven(int64_t rank, int64_t i) {
  const uint64_t bits = static_cast<uint64_t>(rank * 1000003 + i + 1) * 0x9e3779b97f4a7c15u;
  return static_cast<float>(static_cast<int64_t>(bits)) * std::exp2(static_cast<float>(bits >> 59) - 80.0f);
}
inline float tree(int64_t first, int64_t ranks, int64_t i) {
  if (ranks == 1) return uneven(first, i);
  const auto left = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(ranks - 1)));
  return tree(first, left, i) + tree(first + left, ranks - left, i);
}

inline void expect_tree(const at::Tensor& found, int64_t ranks, const char* call) {
  const at::Tensor t = found.cpu();
  const float* data = t.const_data_ptr<float>();
  for (int64_t i = 0; i < t.numel(); ++i) {
    const float wanted = tree(0, ranks, i);
    if (std::memcmp(&data[i], &wanted, sizeof wanted) == 0) continue;
    ADD_FAILURE() << call << " over " << ranks << " ranks: element " << i << " is " << data[i] << ", the tree gives "
                  << wanted;
    return;
  }
}

inline at::Tensor uneven_tensor(Group& g, int64_t global_rank, int64_t n, bool shared) {
  const at::Device device = device_of_rank(global_rank);
  at::Tensor t = shared ? g.allocate(n, at::kFloat) : at::empty({n}, at::TensorOptions(at::kFloat).device(device));
  const at::Tensor host = t.device().is_cpu() ? t : at::empty({n}, at::kFloat);
  for (int64_t i = 0; i < n; ++i) host.mutable_data_ptr<float>()[i] = uneven(global_rank, i);
  return t.copy_(host);
}
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.cpu(), y = b.cpu();
  return x.nbytes() == y.nbytes() && std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

inline void sums_follow_the_fixed_tree(int64_t most_ranks = 8) {
  for (int64_t ranks = 2; ranks <= most_ranks; ++ranks)
    expect_no_errors(run_ranks(ranks, [&](Rank& r) {
      const GroupPtr world = r.world();
      const int64_t n = 5003;  // per rank
      for (const bool shared : {false, true}) {
        at::Tensor t = uneven_tensor(*world, r.rank(), ranks * n, shared);
        const at::Tensor in = uneven_tensor(*world, r.rank(), ranks * n, shared);
        world->all_reduce(t)->wait();
        expect_tree(t, ranks, "all_reduce");
        at::Tensor whole = at::empty({ranks * n}, in.options());
        at::Tensor mine = whole.narrow(0, r.rank() * n, n);
        world->reduce_scatter(mine, in)->wait();
        world->all_gather(whole, mine)->wait();
        expect_tree(whole, ranks, "reduce_scatter and all_gather");
        // Another cut of the same elements gives the same bits.
        at::Tensor tail = uneven_tensor(*world, r.rank(), ranks * n, !shared).narrow(0, 17, 1000);
        world->all_reduce(tail)->wait();
        EXPECT_TRUE(same_bits(tail, t.narrow(0, 17, 1000)));
      }
    }));
}

// Rows of neighbours, then columns: every rank is in three groups, and a sum of sums has the bits of the whole sum.
inline void overlapping_groups_do_not_disturb_each_other() {
  expect_no_errors(run_ranks(4, [](Rank& r) {
    const int64_t row = r.rank() / 2, column = r.rank() % 2;
    const GroupPtr world = r.world();
    const GroupPtr across = r.group({2 * row, 2 * row + 1}, concat("row", row));
    const GroupPtr along = r.group({column, column + 2}, concat("column", column));
    for (int round = 0; round < 20; ++round) {
      at::Tensor whole = uneven_tensor(*world, r.rank(), 1000, false),
                 parts = uneven_tensor(*world, r.rank(), 1000, false);
      across->all_reduce(parts)->wait();
      world->all_reduce(whole)->wait();
      along->all_reduce(parts)->wait();
      EXPECT_TRUE(same_bits(whole, parts));
    }
  }));
}

Suite communicator_suite();

// Error(plugin) if both of two ranks that are threads of this process, as every case of communicator_suite() has them,
// are refused when they are created or make their first group.
void check_ranks_can_be_threads(const Subject& subject);

}  // namespace drivetrain::test
