// How every communicator must fail: on every rank, naming who and what. A failure that is noticed before the time-out
// says so: after it the words are those of a late rank. Part of suite.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>

#include <drivetrain/testkit/communicator/ranks.h>

namespace drivetrain::test {

inline void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" does not say \"" << part << "\"";
}

// Those of `late` make the call when it has ended on all other ranks: late enough, however slow the machine is.
inline void with_late_ranks(Rank& r, const std::vector<int64_t>& late, const std::function<void()>& call) {
  constexpr double kPatienceS = 100;
  Store& store = r.services.store;
  const auto is_late = [&](int64_t rank) { return std::find(late.begin(), late.end(), rank) != late.end(); };
  const std::string ended = concat("ended/", store.add(concat("with_late_ranks/", r.rank()), 1), "/");
  for (int64_t other = 0; other < r.size() && is_late(r.rank()); ++other)
    if (!is_late(other)) store.get(concat(ended, other), kPatienceS);
  std::exception_ptr failure;
  try {
    call();
  } catch (...) {
    failure = std::current_exception();
  }
  store.set(concat(ended, r.rank()), "");
  if (failure) std::rethrow_exception(failure);
}

// `last` goes on when all other ranks came here: what it does then finds no rank in an earlier call.
inline void come_last(Rank& r, int64_t last) {
  constexpr double kPatienceS = 100;
  Store& store = r.services.store;
  if (r.rank() != last) return store.set(concat("came/", r.rank()), "");
  for (int64_t other = 0; other < r.size(); ++other)
    if (other != last) store.get(concat("came/", other), kPatienceS);
}

inline void abort_ends_a_wait_everywhere() {
  const auto errors = run_ranks(3, [](Rank& r) {
    const GroupPtr world = r.world();
    const GroupPtr pair = r.rank() == 2 ? nullptr : r.group({0, 1}, "pair");
    if (r.rank() == 0) world->barrier();
    if (r.rank() == 1) pair->barrier();  // waits in a group that the aborting rank is not in
    std::thread([&] { r.communicator->abort("disk full"); }).join();
    world->barrier();
  });
  for (const std::string& error : errors) expect_part(error, "rank 2 aborted: disk full");
}

inline void different_calls_are_named() {
  const auto both = [](const std::function<void(Group&, int64_t)>& call, const std::string& a, const std::string& b) {
    for (const std::string& error : run_ranks(2, [&](Rank& r) { call(*r.world(), r.rank()); })) {
      expect_part(error, "ranks disagree about call #1 of group \"world\"");
      expect_part(error, "rank 0 called " + a);
      expect_part(error, "rank 1 called " + b);
    }
  };
  const auto zeros = [](int64_t n, at::ScalarType dtype = at::kFloat) {
    return at::empty({n}, at::TensorOptions(dtype));
  };
  both([&](Group& g, int64_t r) { r == 0 ? g.all_reduce(zeros(10))->wait() : g.barrier(); }, "all_reduce of 10 Float",
       "barrier");
  both([&](Group& g, int64_t r) { g.all_reduce(zeros(10 + r))->wait(); }, "all_reduce of 10 Float",
       "all_reduce of 11 Float");
  both([&](Group& g, int64_t r) { g.broadcast(zeros(4), r)->wait(); }, "broadcast of 4 Float from index 0",
       "broadcast of 4 Float from index 1");
  both([&](Group& g, int64_t r) { g.all_reduce(zeros(4, r == 0 ? at::kFloat : at::kInt))->wait(); },
       "all_reduce of 4 Float", "all_reduce of 4 Int");
}

// Each of two ranks expects another number of elements than the other sends: one of the two pairs is named.
inline void counts_that_differ_are_named() {
  const auto errors = run_ranks(2, [](Rank& r) {
    const GroupPtr g = r.world();
    const bool first = r.rank() == 0;
    const at::Tensor in = at::empty({first ? 4 : 3}, at::kFloat), out = at::empty({first ? 2 : 5}, at::kFloat);
    if (first)
      g->all_to_all(out, in, {1, 1}, {1, 3})->wait();
    else
      g->all_to_all(out, in, {4, 1}, {2, 1})->wait();
    g->barrier();
  });
  for (const std::string& error : errors) {
    expect_part(error, "ranks disagree about call #1 of group \"world\"");
    const bool forth = error.find("rank 0 sends 3 ") != std::string::npos;
    expect_part(error, forth ? "to rank 1, which expects 4" : "rank 1 sends 2 ");
    expect_part(error, forth ? "rank 1" : "to rank 0, which expects 1");
  }
}

// Before anything moves, and on the rank that is wrong alone.
inline void wrong_counts_are_refused() {
  expect_no_errors(run_ranks(2, [](Rank& r) {
    const GroupPtr g = r.world();
    const at::Tensor three = at::empty({3}, at::kFloat), four = at::empty({4}, at::kFloat);
    const auto call = [&](const std::vector<int64_t>& received, const std::vector<int64_t>& sent) {
      return error_of([&] { g->all_to_all(four, three, received, sent); });
    };
    expect_part(call({4}, {1, 2}), "wanted 2 counts of elements received, one per rank; found 1");
    expect_part(call({2, 2}, {1, 1}), "the counts of elements sent add up to 2, the tensor has 3 elements");
    expect_part(call({5, -1}, {1, 2}), "is -1; wanted 0 or more");
    const int64_t me = r.rank();
    expect_part(call({2, 2}, me == 0 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2, 1}),
                "sends itself 1 elements and expects 2");
    expect_part(error_of([&] { g->all_to_all(four, four, {2, 2}, {2, 2}); }), "in and out overlap");
    g->barrier();  // a refused call is none: the ranks still stand at the same place
  }));
}

inline void wrong_shapes_are_refused() {
  expect_no_errors(run_ranks(2, [](Rank& r) {
    const GroupPtr g = r.world();
    const at::Tensor three = at::empty({3}, at::kFloat), four = at::empty({4}, at::kFloat);
    expect_part(error_of([&] { g->all_gather(three, four); }), "3 elements do not fit 4 elements from each of 2 ranks");
    expect_part(error_of([&] { g->all_to_all(three, three); }), "3 elements do not fit 3 elements cut into 2 ranks");
    expect_part(error_of([&] { g->broadcast(four, 2); }), "wanted an index from 0 to 1");
    expect_part(error_of([&] { g->all_reduce(at::empty({4, 4}, at::kFloat).t()); }), "contiguous");
    expect_part(error_of([&] { g->all_reduce(at::empty({4}, at::kBool)); }), "no sum over Bool");
    g->barrier();  // a refused call is none: the ranks still stand at the same place
  }));
}

inline void a_rank_that_leaves_is_named() {
  const auto errors = run_ranks(3, [](Rank& r) {
    const GroupPtr world = r.world();
    if (r.rank() != 1) world->barrier();
  });
  EXPECT_EQ(errors[1], "");
  expect_part(errors[0], "rank 1 (pid ");
  expect_part(errors[2], "closed its communicator");
}

inline void a_late_rank_is_named_after_the_timeout() {
  const auto errors = run_ranks(
      3,
      [](Rank& r) {
        const GroupPtr world = r.world();
        world->barrier();
        with_late_ranks(r, {2}, [&] { world->barrier(); });
      },
      R"({"timeout_s": 0.5})");
  for (const std::string& error : errors)
    expect_part(error, "rank 2 did not reach barrier #2 of group \"world\" within 0.5 s (ranks 0 and 1 did)");
}

}  // namespace drivetrain::test
