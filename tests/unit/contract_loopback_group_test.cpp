// The group of one rank: on the device that it was given, with the results of a group that has others.
#include <drivetrain/communicator.h>
#include <drivetrain/mesh.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "support/plugin_under_test.h"
#include "support/texts.h"

namespace drivetrain {
namespace {

using test::error_of, test::expect_part;

TEST(LoopbackGroup, takes_memory_on_the_device_of_its_mesh) {
  const at::Device elsewhere(at::kMeta);
  const Mesh mesh({{"tp", 1}, {"dp", 2, 0, true}}, 1, 2, nullptr, elsewhere);
  for (const GroupPtr& group : {mesh.group("tp"), mesh.group("absent"), mesh.group(std::vector<std::string>{})}) {
    EXPECT_EQ(group->allocate(3, at::kHalf).device(), elsewhere);
    EXPECT_EQ(group->allocate(3, at::kHalf).scalar_type(), at::kHalf);
    EXPECT_EQ(group->ranks(), std::vector<int64_t>{1});
    EXPECT_EQ(group->rank(), 0);
  }
  EXPECT_TRUE(Mesh({}, 0, 1, nullptr).world()->allocate(3, at::kFloat).is_cpu());
}

TEST(LoopbackGroup, gives_back_what_it_is_given) {
  const GroupPtr group = loopback_group(5, at::kCPU, "self");
  const at::Tensor in = at::arange(6, at::kFloat);
  using Move = std::function<WorkPtr(at::Tensor)>;
  const std::vector<Move> moves = {[&](at::Tensor out) { return group->all_gather(out, in); },
                                   [&](at::Tensor out) { return group->reduce_scatter(out, in); },
                                   [&](at::Tensor out) { return group->all_to_all(out, in); },
                                   [&](at::Tensor out) { return group->all_to_all(out, in, {6}, {6}); }};
  for (const Move& move : moves) {
    const at::Tensor out = at::zeros({6}, at::kFloat);
    move(out)->wait();
    EXPECT_TRUE(at::equal(out, in));
    move(in)->wait();  // in place
    EXPECT_TRUE(at::equal(out, in));
  }
  group->all_reduce(in)->wait();
  group->broadcast(in, 0)->wait();
  EXPECT_TRUE(at::equal(in, at::arange(6, at::kFloat)));
}

TEST(LoopbackGroup, a_send_is_taken_by_the_next_recv) {
  const GroupPtr group = loopback_group(0, at::kCPU, "self");
  const at::Tensor first = at::arange(3, at::kFloat), second = first.add(10), got = at::zeros({3}, at::kFloat);
  group->batch_begin();
  group->recv(got, 0);
  group->send(first, 0);
  group->send(second, 0);
  group->batch_end();
  EXPECT_TRUE(at::equal(got, first));
  group->recv(got, 0)->wait();
  EXPECT_TRUE(at::equal(got, second));
  group->batch_begin();
  group->recv(got, 0);
  expect_part(error_of([&] { group->batch_end(); }), "sent itself nothing");
}

TEST(LoopbackGroup, refuses_what_does_not_fit) {
  const GroupPtr group = loopback_group(3, at::kCPU, "dp");
  const at::Tensor three = at::zeros({3}, at::kFloat), four = at::zeros({4}, at::kFloat);
  expect_part(error_of([&] { group->all_gather(four, three); }), "all_gather in group \"dp\" of rank 3 alone");
  expect_part(error_of([&] { group->all_to_all(three, three.to(at::kInt)); }), "one dtype");
  expect_part(error_of([&] { group->all_to_all(three, three, {2}, {3}); }), "3 sent, 2 received");
  expect_part(error_of([&] { group->broadcast(three, 1); }), "wanted index 0, found 1");
  expect_part(error_of([&] { group->send(three, 1); }), "wanted index 0, found 1");
}

}  // namespace
}  // namespace drivetrain
