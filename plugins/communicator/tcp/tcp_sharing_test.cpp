// communicator/tcp where some ranks share a host: the same bits as with a host for each, and what a peer may not do
// with shared memory. Here hosts are what ranks are told; tcp_hosts_test.cpp has network namespaces.
#include <ATen/ops/randn.h>

#include <boost/asio/executor_work_guard.hpp>

#include <drivetrain/testkit/communicator/works.h>
#include "conformance/communicator/linked.h"
#include "connection.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;
using toolkit::host_memory::Room;

const char* const kShared = R"({"timeout_s": 20, "interface": "lo", "piece_bytes": 100000})";
const char* const kApart = R"({"timeout_s": 20, "interface": "lo", "share": false})";
const char* const kSmallPieces = R"({"timeout_s": 20, "interface": "lo", "piece_bytes": 4000})";

int64_t sum_of(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

// Ranks as threads that believe to be on hosts with so many ranks each.
struct OnHosts {
  explicit OnHosts(std::vector<int64_t> ranks_of_hosts) : ranks(sum_of(ranks_of_hosts)) {
    communicator_maker = [usual = usual_, hosts = std::move(ranks_of_hosts)](const std::string& json,
                                                                             const Services& all_here) {
      Services services = all_here;
      for (const int64_t size : hosts) {
        services.local_size = size;
        if (services.local_rank < size) break;
        services.local_rank -= size;
      }
      return usual(json, services);
    };
  }
  OnHosts(const OnHosts&) = delete;
  ~OnHosts() { communicator_maker = usual_; }
  const int64_t ranks;

 private:
  const CommunicatorMaker usual_ = communicator_maker;
};

void expect_fixed_tree(const GroupPtr& world, int64_t n, bool shared) {
  const int64_t ranks = world->size(), me = world->rank();
  at::Tensor t = uneven_tensor(*world, me, ranks * n + 5, shared);
  world->all_reduce(t)->wait();
  expect_tree(t, ranks, "all_reduce");
  const at::Tensor in = uneven_tensor(*world, me, ranks * n, !shared);
  at::Tensor whole = at::empty({ranks * n}, in.options()), mine = whole.narrow(0, me * n, n);
  world->reduce_scatter(mine, in)->wait();
  world->all_gather(whole, mine)->wait();
  expect_tree(whole, ranks, "reduce_scatter and all_gather");
}

// Hosts that hold nodes of the tree, hosts that cut them, hosts of one rank beside others.
TEST(CommunicatorTcpSharing, sums_follow_the_fixed_tree_however_ranks_lie_on_hosts) {
  using Layout = std::vector<int64_t>;
  for (const Layout& layout : {Layout{2, 2}, Layout{3, 3}, Layout{1, 3}, Layout{4, 4, 3}, Layout{4, 1, 2}, Layout{5}}) {
    const OnHosts hosts(layout);
    expect_no_errors(run_threads(
        hosts.ranks, [](Rank& r) { expect_fixed_tree(r.world(), 1501, true); }, kSmallPieces));
  }
}

// Pieces of 100000 bytes stay in shared memory.
TEST(CommunicatorTcpSharing, long_pieces_give_the_same_sums_from_private_and_shared_memory) {
  const OnHosts hosts({2, 2});
  for (const bool shared : {false, true})
    expect_no_errors(run_threads(
        hosts.ranks, [&](Rank& r) { expect_fixed_tree(r.world(), 60001, shared); }, kShared));
}

// Sums that are rounded once cannot be sent in parts.
TEST(CommunicatorTcpSharing, the_bits_are_those_of_ranks_that_share_nothing) {
  const OnHosts hosts({2, 1, 2});
  expect_no_errors(run_threads(
      hosts.ranks,
      [](Rank& r) {
        Rank apart(r.rank(), r.size(), r.services.store, kApart);
        const GroupPtr world = r.world(), flat = apart.world();
        for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
          at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(r.rank()));
          at::Tensor one = at::randn({200003}, generator, at::TensorOptions(at::kDouble)).to(dtype),
                     other = one.clone();
          world->all_reduce(one)->wait();
          flat->all_reduce(other)->wait();
          EXPECT_TRUE(same_bits(one, other)) << dtype;
        }
      },
      kShared));
}

TEST(CommunicatorTcpSharing, every_call_works_over_hosts_of_several_ranks) {
  const OnHosts hosts({2, 3});
  expect_no_errors(run_threads(
      hosts.ranks,
      [](Rank& r) {
        const GroupPtr world = r.world(), across = r.group(every_second(r.rank() % 2, 5), concat("half", r.rank() % 2));
        for (const GroupPtr& group : {world, across})
          for (const Place place : {Place::own, Place::shared, Place::mixed})
            for (const int64_t n : {3, 257, 20001}) {
              const Collectives c{r, *group, at::kInt, place};
              c.sums(n);
              c.moves(n);
              c.exchanges(n);
              c.messages(n);
            }
      },
      kShared));
}

// ---- what a peer says of its memory ----

struct NearPair {
  NearPair() {
    for (const auto& [room, other, rank] : {std::tuple(rooms[0], rooms[1], 1), std::tuple(rooms[1], rooms[0], 0)})
      room->meet(rank, other->announcement());
    boost::asio::ip::tcp::acceptor acceptor(context, {boost::asio::ip::address_v4::loopback(), 0});
    tcp::Socket a(context), b(context);
    a.connect(acceptor.local_endpoint());
    acceptor.accept(b);
    a.non_blocking(true), b.non_blocking(true);
    ends[0] = std::make_unique<tcp::Connection>(std::move(a), "rank 1", tcp::Near{rooms[0], 1});
    ends[1] = std::make_unique<tcp::Connection>(std::move(b), "rank 0", tcp::Near{rooms[1], 0});
  }
  void advance_until(const std::function<bool()>& done) {
    for (int i = 0; i < 5000 && !done(); ++i) {
      context.run_one_for(std::chrono::milliseconds(1));
      for (const auto& end : ends) end->advance();
    }
  }
  static tcp::TcpTransferPtr transfer(std::string& bytes, bool looks = false) {
    auto made = std::make_shared<tcp::TcpTransfer>();
    made->data = bytes.data(), made->bytes = static_cast<int64_t>(bytes.size()), made->looks = looks;
    return made;
  }
  boost::asio::io_context context;
  const boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{context.get_executor()};
  const std::shared_ptr<Room> rooms[2] = {std::make_shared<Room>(0, 2), std::make_shared<Room>(1, 2)};
  std::unique_ptr<tcp::Connection> ends[2];
};

TEST(CommunicatorTcpSharing, a_sender_waits_until_who_looks_has_seen_the_message) {
  NearPair pair;
  std::string sent(100000, 'x'), room(100000, ' ');
  const auto sending = NearPair::transfer(sent);
  auto looking = NearPair::transfer(room, true);
  pair.ends[0]->send(7, 1, sending);
  pair.ends[1]->recv(7, 1, looking);
  pair.advance_until([&] { return looking->done(); });
  ASSERT_NE(looking->at(), nullptr);
  EXPECT_EQ(std::string(looking->at(), sent.size()), sent);
  EXPECT_EQ(room[0], ' ') << "it was copied";
  for (int i = 0; i < 20; ++i) pair.ends[0]->advance(), pair.ends[1]->advance();
  EXPECT_FALSE(sending->done());
  looking = nullptr;
  pair.advance_until([&] { return sending->done(); });
  EXPECT_TRUE(sending->done());
}

TEST(CommunicatorTcpSharing, memory_that_is_not_the_ranks_own_is_refused) {
  NearPair pair;
  const std::string good = pair.rooms[1]->announcement();
  EXPECT_EQ(pair.rooms[0]->find(1, int64_t{1} << 40, 8), nullptr);
  EXPECT_EQ(pair.rooms[0]->find(1, 0, int64_t{1} << 40), nullptr);
  EXPECT_EQ(pair.rooms[0]->find(5, 0, 8), nullptr) << "a rank that was not met";
  std::string wrong_token = good;
  wrong_token.back() = wrong_token.back() == '1' ? '2' : '1';
  for (const auto& [said, problem] : {std::pair(wrong_token, "does not carry the token"),
                                      {"", "announced its memory by \"\""},
                                      {"1:2:3", "announced its memory by"},
                                      {concat(getpid(), ":0:1048576:1-2"), "refused"}})
    expect_part(error_of([&, said = said] { Room(0, 2).meet(1, said); }), problem);
}

}  // namespace
}  // namespace drivetrain
