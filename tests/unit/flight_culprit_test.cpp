// Who holds a run up, from the pictures of its ranks.
#include "watch/culprit.h"

#include <c10/core/ScalarType.h>
#include <gtest/gtest.h>

namespace drivetrain {
namespace {

using Ranks = std::vector<int64_t>;
using Pictures = std::vector<std::optional<RankPicture>>;

FlightCall collective(FlightOp op, int64_t number, int64_t bytes = 64) {
  return {op, number, bytes, static_cast<int8_t>(c10::ScalarType::Float), -1};
}
FlightCall message(FlightOp op, int64_t number, int64_t peer) {
  return {op, number, 64, static_cast<int8_t>(c10::ScalarType::Float), peer};
}

// `ranks` of one group, each of which has made `done` collectives and waits in the next.
Pictures all_waiting(int64_t ranks, int64_t done, const std::string& group = "dp@0") {
  Pictures pictures;
  for (int64_t r = 0; r < ranks; ++r) {
    RankPicture p;
    p.rank = r, p.host = "here", p.quiet_s = 6, p.place = {17, 2, FlightDoing::backward};
    for (int64_t n = 1; n <= done; ++n)
      p.ended.push_back({group, collective(FlightOp::all_gather, n), FlightState::done, 7});
    p.open.push_back({group, collective(FlightOp::reduce_scatter, done + 1), FlightState::waiting, 6});
    p.reached[group] = done + 1;
    pictures.push_back(p);
  }
  return pictures;
}
// It has not made the call that the others wait in.
void hold_up(RankPicture& p, const std::string& call, const std::string& group = "dp@0") {
  p.open.clear();
  p.reached[group] -= 1;
  if (!call.empty()) p.stays.push_back({call, 41, true});
}

FlightVerdict verdict(const Pictures& pictures, std::vector<std::string> hosts = {}) {
  hosts.resize(pictures.size());
  return find_culprit(pictures, hosts);
}
void expect_says(const FlightVerdict& v, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(v.text.find(part), std::string::npos) << part << "\n" << v.text;
  EXPECT_EQ(v.text.find('\n'), std::string::npos) << "one line";
}

TEST(Culprit, is_who_has_not_made_the_call_that_the_others_wait_in) {
  Pictures pictures = all_waiting(8, 3);
  hold_up(*pictures[3], "dataset/text, hook read");
  const FlightVerdict v = verdict(pictures, {"a", "a", "a", "b", "b", "b", "b", "b"});
  EXPECT_EQ(v.culprits, Ranks{3});
  expect_says(v, {"rank 3 on host b is in dataset/text, hook read, for 41 s (step 17, micro-batch 2)",
                  "ranks 0-2 and 4-7 wait in reduce_scatter #4 of group dp@0 (16 elements of Float)"});
  EXPECT_FALSE(v.different_calls);
}

TEST(Culprit, is_not_who_waits_for_another_himself) {
  // 1 waits for 2 in a group of their own, 0 for 1, and 2 computes.
  Pictures pictures = all_waiting(3, 1);
  hold_up(*pictures[1], "");
  pictures[1]->open.push_back({"tp@1", collective(FlightOp::all_reduce, 5), FlightState::waiting, 6});
  pictures[1]->reached["tp@1"] = 5;
  hold_up(*pictures[2], "optimizer/mine, hook update");
  pictures[2]->reached["tp@1"] = 4;
  EXPECT_EQ(verdict(pictures).culprits, Ranks{2});
}

// On a device a host has enqueued further calls before the first of them is over.
TEST(Culprit, is_who_has_not_made_one_of_many_calls_that_devices_wait_in) {
  Pictures pictures = all_waiting(3, 3);
  for (auto& p : pictures)
    p->open.push_back({"world", collective(FlightOp::all_gather, 9), FlightState::waiting, 5}), p->reached["world"] = 9;
  hold_up(*pictures[1], "dataset/text, hook read");
  pictures[1]->reached["world"] = 8;
  const FlightVerdict v = verdict(pictures);
  EXPECT_EQ(v.culprits, Ranks{1});
  expect_says(v, {"rank 1 is in dataset/text, hook read", "ranks 0 and 2 wait in all_gather #9 of group world"});
}

TEST(Culprit, is_who_gives_no_picture) {
  Pictures pictures = all_waiting(4, 2);
  pictures[2].reset();
  const FlightVerdict v = verdict(pictures, {"a", "a", "b", "b"});
  EXPECT_EQ(v.culprits, Ranks{2});
  expect_says(v, {"rank 2 on host b does not answer: stopped", "ranks 0, 1 and 3 wait in reduce_scatter #3"});
}

TEST(Culprit, is_who_has_made_no_call_in_the_group_at_all) {
  Pictures pictures = all_waiting(2, 0);
  hold_up(*pictures[1], "model/mine, hook forward, unit block.0");
  EXPECT_EQ(verdict(pictures).culprits, Ranks{1});
}

TEST(Culprit, of_messages_is_the_peer_that_has_not_sent) {
  Pictures pictures = all_waiting(3, 0);
  for (auto& p : pictures) p->open.clear(), p->reached = {{"pp@0", 0}};
  pictures[2]->open.push_back({"pp@0", message(FlightOp::recv, 4, 1), FlightState::waiting, 6});
  pictures[1]->open.push_back({"pp@0", message(FlightOp::recv, 9, 0), FlightState::waiting, 6});
  pictures[0]->ended.push_back({"pp@0", message(FlightOp::send, 8, 1), FlightState::done, 6});
  const FlightVerdict v = verdict(pictures);
  EXPECT_EQ(v.culprits, Ranks{0});
  expect_says(v, {"rank 1 waits in recv #9 from rank 0, group pp@0", "rank 2 waits in recv #4 from rank 1"});
}

TEST(Culprit, of_different_calls_is_the_smaller_side) {
  Pictures pictures = all_waiting(4, 2);
  pictures[1]->open[0].call = collective(FlightOp::barrier, 3, 0);
  const FlightVerdict v = verdict(pictures);
  EXPECT_TRUE(v.different_calls);
  EXPECT_EQ(v.culprits, Ranks{1});
  expect_says(v, {"ranks 0, 2 and 3: reduce_scatter #3 of group dp@0", "rank 1: barrier #3 of group dp@0"});

  Pictures two = all_waiting(2, 2);
  two[1]->open[0].call.bytes = 128;
  EXPECT_TRUE(verdict(two).different_calls);
  EXPECT_TRUE(verdict(two).culprits.empty()) << "one against one: nobody is the exception";
  expect_says(verdict(two),
              {"rank 0: reduce_scatter #3 of group dp@0 (16 elements", "rank 1: reduce_scatter #3", "(32 elements"});

  // Also where one of the calls is over: a broadcast's root need not wait.
  Pictures over = all_waiting(3, 2);
  over[0]->ended.push_back({"dp@0", collective(FlightOp::broadcast, 3), FlightState::done, 6});
  over[0]->open.clear();
  EXPECT_EQ(verdict(over).culprits, Ranks{0});
}

TEST(Culprit, ranks_that_wait_in_turn_are_all_named) {
  Pictures pictures = all_waiting(2, 0, "a@0");
  for (auto& p : pictures) p->open.clear(), p->reached = {{"a@0", 0}, {"b@0", 0}};
  pictures[0]->open.push_back({"a@0", collective(FlightOp::all_reduce, 1), FlightState::waiting, 6});
  pictures[0]->reached["a@0"] = 1;
  pictures[1]->open.push_back({"b@0", collective(FlightOp::all_reduce, 1), FlightState::waiting, 6});
  pictures[1]->reached["b@0"] = 1;
  const FlightVerdict v = verdict(pictures);
  EXPECT_EQ(v.culprits, (Ranks{0, 1}));
  expect_says(v, {"wait for each other in turn", "rank 0 waits in all_reduce #1 of group a@0"});
}

TEST(Culprit, a_transfer_that_does_not_end_is_nobodys) {
  const FlightVerdict v = verdict(all_waiting(3, 2));
  EXPECT_TRUE(v.culprits.empty());
  expect_says(v, {"every rank has made its call", "ranks 0-2 wait in reduce_scatter #3"});
}

TEST(Culprit, where_nobody_waits_is_the_quietest) {
  Pictures pictures = all_waiting(2, 2);
  for (auto& p : pictures) p->open.clear();
  pictures[1]->quiet_s = 12;
  const FlightVerdict v = verdict(pictures);
  EXPECT_EQ(v.culprits, Ranks{1});
  expect_says(v, {"rank 1 is in backward, quiet for 12 s (step 17, micro-batch 2)"});
}

// Pictures of a run that goes on are of different moments, so that ranks seem to wait in turn.
TEST(Culprit, is_nobody_where_a_rank_has_just_moved) {
  Pictures pictures = all_waiting(3, 2);
  EXPECT_FALSE(text_of_a_run_that_goes_on(pictures)) << "all are quiet for 6 s";
  pictures[1]->quiet_s = 0.02, pictures[1]->place.step = 18;
  EXPECT_EQ(text_of_a_run_that_goes_on(pictures), "rank 1 goes on, at step 18; ranks 0 and 2 go on, at step 17");
  pictures[2].reset();
  EXPECT_FALSE(text_of_a_run_that_goes_on(pictures)) << "rank 2 is to be named";
}

LeftRecord left_of(int64_t rank, FlightState last, int64_t written_ns) {
  LeftRecord left;
  left.rank = rank, left.world_size = 3, left.host = "here", left.place = {17, 0, FlightDoing::backward};
  left.written_ns = written_ns, left.reached = {{"dp@0", 5}};
  left.entries.push_back(
      {1, "dp@0", collective(FlightOp::all_reduce, 5), last, 1, 1, last == FlightState::failed ? 2. : 0.});
  return left;
}

TEST(Culprit, of_a_run_that_is_over_is_whose_calls_did_not_fail) {
  std::vector<LeftRecord> records{left_of(0, FlightState::failed, 900), left_of(1, FlightState::failed, 800),
                                  left_of(2, FlightState::waiting, 100)};
  const FlightVerdict v = find_culprit(records);
  EXPECT_EQ(v.culprits, Ranks{2});
  expect_says(v, {"rank 2 ended first, in backward (step 17)"});
  records[2] = left_of(2, FlightState::failed, 100);
  EXPECT_TRUE(find_culprit(records).culprits.empty()) << "all saw a failure: nobody can be named";
  records[2] = left_of(2, FlightState::waiting, 950);
  EXPECT_TRUE(find_culprit(records).culprits.empty()) << "it was there when the first call failed";
}

TEST(RankPicture, travels_as_json) {
  Pictures pictures = all_waiting(1, 2);
  RankPicture& p = *pictures[0];
  p.pid = 77, p.stays.push_back({"dataset/text, hook read", 3.5, true});
  const Value once = p.to_value();
  EXPECT_EQ(RankPicture::from_value(parse_json(once.to_json(), "x")).to_value().to_json(), once.to_json());
  Value cut = once;
  cut.erase("open");
  EXPECT_THROW(RankPicture::from_value(cut), Error);
}

}  // namespace
}  // namespace drivetrain
