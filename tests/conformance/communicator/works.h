// What every communicator must do with works that are not waited for at once, and with memory that exists once. Used
// like suite.h, whose values it uses.
#pragma once

#include <random>

#include <drivetrain/testkit/communicator/suite.h>

namespace drivetrain::test {

// One call that was made and not waited for: its work, and what must be there afterwards.
struct Outstanding {
  WorkPtr work;
  std::function<void()> expect;
};

// Makes call number `i` of a row of different ones. Results are poisoned before.
inline Outstanding make_call(const Collectives& c, int64_t i) {
  Group& g = c.g;
  const int64_t me = g.rank(), size = g.size(), n = 1 + (i * 37) % 501, shift = i;
  const auto value = [=](int64_t r, int64_t k) { return number(r + shift, k, c.dtype); };
  const auto total = [=](int64_t k) {
    int64_t sum = 0;
    for (int64_t p = 0; p < size; ++p) sum += value(p, k);
    return sum;
  };
  const auto own = [=](int64_t k) { return value(me, k); };
  const auto poison = [](int64_t) { return 77; };
  switch (i % 7) {
    case 0: {
      at::Tensor t = c.filled(n, own);
      return {g.all_reduce(t), [=] { c.expect(t, "all_reduce", total); }};
    }
    case 1: {
      const at::Tensor in = c.filled(size * n, own);
      at::Tensor out = i % 2 == 0 ? in.narrow(0, me * n, n) : c.filled(n, poison);
      return {g.reduce_scatter(out, in),
              [=] { c.expect(out, "reduce_scatter", [=](int64_t k) { return total(me * n + k); }); }};
    }
    case 2: {
      at::Tensor out = c.filled(size * n, poison), in = out.narrow(0, me * n, n);
      in.copy_(c.filled(n, own));
      return {g.all_gather(out, in),
              [=] { c.expect(out, "all_gather", [=](int64_t k) { return value(k / n, k % n); }); }};
    }
    case 3: {
      at::Tensor out = c.filled(size * n, poison);
      return {g.all_to_all(out, c.filled(size * n, own)),
              [=] { c.expect(out, "all_to_all", [=](int64_t k) { return value(k / n, me * n + k % n); }); }};
    }
    case 4: {
      std::vector<int64_t> sent, received;
      int64_t there = 0, here = 0;
      for (int64_t p = 0; p < size; ++p) {
        sent.push_back((me + p) % 3 * n), received.push_back((p + me) % 3 * n);
        there += sent.back(), here += received.back();
      }
      at::Tensor out = c.filled(here, poison);
      return {g.all_to_all(out, c.filled(there, own), received, sent), [=] {
                Slices slices(received);
                c.expect(out, "all_to_all with counts", [&](int64_t k) {
                  const auto [from, i] = slices(k);
                  int64_t before = 0;  // what it sends to ranks below me
                  for (int64_t q = 0; q < me; ++q) before += (from + q) % 3 * n;
                  return value(from, before + i);
                });
              }};
    }
    default: {
      const int64_t root = i % size;
      at::Tensor t = c.filled(n, me == root ? std::function<int64_t(int64_t)>(own) : poison);
      return {g.broadcast(t, root), [=] { c.expect(t, "broadcast", [=](int64_t k) { return value(root, k); }); }};
    }
  }
}

inline std::vector<int64_t> every_second(int64_t first, int64_t ranks) {
  std::vector<int64_t> list;
  for (int64_t r = first; r < ranks; r += 2) list.push_back(r);
  return list;
}

// Over two groups at once; every rank waits in an order of its own.
inline void works_may_be_waited_for_in_any_order(const std::vector<int64_t>& sizes = {1, 2, 3, 4, 5},
                                                 int64_t calls = 200) {
  for (const int64_t ranks : sizes)
    expect_no_errors(run_ranks(ranks, [&](Rank& r) {
      const GroupPtr world = r.world();
      const GroupPtr half = r.group(every_second(r.rank() % 2, ranks), concat("half", r.rank() % 2));
      for (const Place place : {Place::own, Place::shared, Place::mixed}) {
        const Collectives all{r, *world, at::kFloat, place}, some{r, *half, at::kInt, place};
        std::vector<Outstanding> made;
        for (int64_t i = 0; i < calls; ++i) made.push_back(make_call(i % 3 == 2 ? some : all, i));
        std::shuffle(made.begin(), made.end(), std::minstd_rand(static_cast<unsigned>(r.rank() + 1)));
        for (const Outstanding& call : made) {
          call.work->wait();
          call.expect();
        }
        for (const Outstanding& call : made) call.work->wait();
        for (const Outstanding& call : made) call.expect();
      }
    }));
}

// The same memory in several calls, none waited for before the next is made.
inline void calls_take_effect_in_the_order_in_which_they_were_made(const std::vector<int64_t>& sizes = {2, 3, 5}) {
  for (const int64_t ranks : sizes)
    expect_no_errors(run_ranks(ranks, [&](Rank& r) {
      const GroupPtr world = r.world();
      const int64_t me = r.rank();
      for (const Place place : {Place::own, Place::shared, Place::mixed})
        for (const int64_t n : {3, 70001}) {
          const Collectives c{r, *world, at::kLong, place};
          at::Tensor t = c.filled(n, [&](int64_t i) { return number(me, i, at::kLong); });
          at::Tensor whole = c.empty(ranks * n), part = whole.narrow(0, me * n, n);
          const WorkPtr works[] = {world->all_reduce(t),
                                   world->all_reduce(t),
                                   world->all_gather(whole, t),
                                   world->all_reduce(t),
                                   world->reduce_scatter(part, whole),
                                   world->all_gather(whole, part),
                                   world->broadcast(whole, ranks - 1)};
          for (size_t w = std::size(works); w-- > 0;) works[w]->wait();
          const auto once = [&](int64_t i) { return c.total(i); };
          c.expect(t, "three sums", [&](int64_t i) { return ranks * ranks * once(i); });
          c.expect(whole, "a sum of gathered sums", [&](int64_t i) { return ranks * ranks * once(i % n); });
        }
    }));
}

// All ranks have it or none. Where they have it, what one writes is seen by the others after the next collective.
inline void memory_that_exists_once_holds_what_each_rank_wrote(const std::vector<int64_t>& sizes = {1, 2, 3, 5}) {
  for (const int64_t ranks : sizes)
    expect_no_errors(run_ranks(ranks, [&](Rank& r) {
      const GroupPtr world = r.world();
      const int64_t n = 1003;
      for (int64_t round = 0; round < 3; ++round) {
        at::Tensor once = world->allocate_once(ranks * n, at::kFloat);
        const Collectives c{r, *world, at::kFloat, Place::own};
        at::Tensor defined = c.filled(1, [&](int64_t) { return once.defined() ? 1 : 0; });
        world->all_reduce(defined)->wait();
        c.expect(defined, "ranks with memory that exists once", [&](int64_t) { return once.defined() ? ranks : 0; });
        if (!once.defined()) return left_out("memory that exists once", "Group::allocate_once gives none");
        const auto wanted = [&](int64_t i) { return number(i / n + round, i % n, at::kFloat); };
        const at::Tensor own = once.narrow(0, r.rank() * n, n);
        own.copy_(c.filled(n, [&](int64_t i) { return wanted(r.rank() * n + i); }));
        world->barrier();  // no rank has copies of its own
        c.expect(once, "memory that exists once after a barrier", wanted);
        world->all_gather(once, own)->wait();
        c.expect(once, "all_gather in memory that exists once", wanted);
        world->barrier();
        // From elsewhere into it.
        const at::Tensor in = c.filled(n, [&](int64_t i) { return wanted(r.rank() * n + i) + 1; });
        world->all_gather(once, in)->wait();
        c.expect(once, "all_gather into memory that exists once", [&](int64_t i) { return wanted(i) + 1; });
        world->barrier();  // the next round may write the same memory
      }
    }));
}

// Works of one group keep moving while a rank waits in another group, makes one or waits for one to be made.
inline void waiting_anywhere_drives_the_works_of_all_groups() {
  for (const int64_t maker : {0, 1})
    expect_no_errors(run_ranks(3, [&](Rank& r) {
      const GroupPtr world = r.world();
      const Collectives c{r, *world, at::kFloat, Place::own};
      at::Tensor t = c.filled(1000003, [&](int64_t i) { return number(r.rank(), i, at::kFloat); });
      const WorkPtr work = world->all_reduce(t);
      const int64_t first_waits = 1 - maker;
      if (r.rank() == first_waits || r.rank() == 2) work->wait();  // needs the part of `maker`
      if (r.rank() != 2) r.group({0, 1}, "pair")->barrier();
      work->wait();
      c.expect(t, "all_reduce", [&](int64_t i) { return c.total(i); });
    }));
}

}  // namespace drivetrain::test
