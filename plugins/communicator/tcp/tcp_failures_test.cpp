// communicator/tcp: ranks that die or stand still, strangers, and who else listens where a rank should.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <csignal>
#include <sstream>

#include <drivetrain/testkit/communicator/works.h>
#include "conformance/communicator/linked.h"
#include "connection.h"
#include "meeting.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;
using tcp::Connection;
using tcp::Meeting;

TEST(CommunicatorTcpFailures, a_killed_process_is_named) {
  for (const bool asleep : {false, true}) {
    const auto ended = run_processes(3, [&](Rank& r) {
      const GroupPtr world = r.world();
      at::Tensor t = at::empty({200000}, at::kFloat);
      for (int step = 0; step < 5; ++step) world->all_reduce(t)->wait();
      come_last(r, 1);
      if (r.rank() == 1) {
        // Waits: the others are asleep in their call by then, mostly; either is right
        if (asleep) std::this_thread::sleep_for(std::chrono::milliseconds(300));
        kill(getpid(), SIGKILL);
      }
      world->all_reduce(t)->wait();
    });
    for (const size_t r : {0, 2}) {
      expect_part(ended[r].error, "rank 1");  // as the store says it, or this communicator: whoever noticed first
      expect_part(ended[r].error, "all_reduce #6 of group \"world\"");
    }
  }
}

TEST(CommunicatorTcpFailures, a_process_that_stands_still_is_named_after_the_timeout) {
  const auto ended = run_processes(
      3,
      [](Rank& r) {
        const GroupPtr world = r.world();
        Store& store = r.services.store;
        if (r.rank() == 2) store.set("pid", std::to_string(getpid()));
        world->barrier();
        if (r.rank() == 2) kill(getpid(), SIGSTOP);
        const std::string error = error_of([&] { world->barrier(); });
        if (r.rank() == 1) store.set("rank 1 knows", "");
        if (r.rank() == 0) {
          store.get("rank 1 knows", 100);
          kill(std::stoi(store.get("pid", 100)), SIGCONT);
        }
        throw std::runtime_error(error);
      },
      R"({"timeout_s": 1})");
  for (const size_t r : {0, 1})
    expect_part(ended[r].error, "rank 2 did not reach barrier #2 of group \"world\" within 1 s");
}

// ---- meetings, both sides in this thread ----

using Work = boost::asio::executor_work_guard<boost::asio::io_context::executor_type>;

struct Sides {
  boost::asio::io_context context;
  const Work work{context.get_executor()};
  std::shared_ptr<Store> store = make_local_store();
  const boost::asio::ip::address here = boost::asio::ip::address_v4::loopback();
  Meeting first{context, *store, "meeting/", 0, {1}, here};

  // What rank 0 wrote: address, port, secret.
  std::string field(int index) const {
    std::istringstream text(store->get("meeting/at/0", 1));
    std::string word;
    for (int i = 0; i <= index; ++i) text >> word;
    return word;
  }
  uint16_t port() const { return static_cast<uint16_t>(std::stoi(field(1))); }
  bool advance(Meeting& second, double seconds_at_most = 100) {
    // Waits: a deadline is a time; no slow machine reaches it
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds_at_most);
    // Waits: until the deadline
    while (!(first.done() && second.done()) && std::chrono::steady_clock::now() < until) {
      context.run_one_for(std::chrono::milliseconds(1));
      first.advance();
      second.advance();
    }
    return first.done() && second.done();
  }
};

struct Stranger {
  explicit Stranger(uint16_t port, const std::string& says = "") : fd(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    if (!says.empty()) said = send(fd, says.data(), says.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(says.size());
  }
  Stranger(const Stranger&) = delete;
  ~Stranger() { close(fd); }
  int fd;
  bool connected = false, said = true;
};

TEST(CommunicatorTcpFailures, strangers_keep_nobody_from_meeting) {
  Sides sides;
  const std::string magic = "dt-tcp/1", rank_1("\1\0\0\0\0\0\0\0", 8);
  std::deque<Stranger> strangers;
  for (const std::string& says : {std::string(), std::string("G"), std::string("GET / HTTP/1.1\r\n\r\n"), magic,
                                  magic + rank_1, magic + rank_1 + std::string(32, 'x'), std::string(100000, '\0')})
    strangers.emplace_back(sides.port(), says);
  for (int i = 0; i < 400; ++i) {  // more than are kept, and all silent
    strangers.emplace_back(sides.port());
    sides.first.advance();
  }
  Meeting second(sides.context, *sides.store, "meeting/", 1, {0}, sides.here);
  ASSERT_TRUE(sides.advance(second)) << sides.first.missing() << second.missing();
  expect_part(sides.first.take().at(1).who, concat("rank 1 (pid ", getpid(), " on host "));
  EXPECT_FALSE(Stranger(sides.port()).connected) << "it still listens";
}

TEST(CommunicatorTcpFailures, who_listens_in_place_of_a_rank_is_told_from_it) {
  const Listener other;
  boost::asio::io_context context;
  const Work work(context.get_executor());
  const auto store = make_local_store();
  store->set("meeting/at/0",
             concat("127.0.0.1 ", other.port, " ", std::string(32, 'a'), " - rank 0 (pid 1 on host b)"));
  Meeting second(context, *store, "meeting/", 1, {0}, boost::asio::ip::address_v4::loopback());
  std::thread liar([&] {
    const int fd = accept(other.fd, nullptr, nullptr);
    const std::string wrong = std::string("dt-tcp/1") + std::string(40, '\0');
    EXPECT_GT(send(fd, wrong.data(), wrong.size(), MSG_NOSIGNAL), 0);
    char bytes[48];
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {
    }
    close(fd);
  });
  for (int i = 0; i < 20000 && second.missing().find("not this run's") == std::string::npos; ++i) {
    context.run_one_for(std::chrono::milliseconds(1));
    second.advance();
  }
  liar.join();
  expect_part(second.missing(), concat("rank 1 could not connect to rank 0: 127.0.0.1:", other.port));
  expect_part(second.missing(), "what listens there is not this run's rank");
  close(other.fd);
}

TEST(CommunicatorTcpFailures, a_rank_that_does_not_come_is_named_with_the_address) {
  Sides sides;
  expect_part(sides.first.missing(), concat("rank 1 did not connect to rank 0 at 127.0.0.1:", sides.port()));
}

struct Pair {
  Pair() {
    Meeting second(sides.context, *sides.store, "meeting/", 1, {0}, sides.here);
    if (!sides.advance(second)) throw std::runtime_error("they did not meet");
    auto at_first = sides.first.take(), at_second = second.take();
    a = std::make_unique<Connection>(std::move(at_first.at(1).socket), at_first.at(1).who);
    b = std::make_unique<Connection>(std::move(at_second.at(0).socket), at_second.at(0).who);
  }
  void advance_until(const std::function<bool()>& done) {
    for (int i = 0; i < 20000 && !done(); ++i) {
      sides.context.run_one_for(std::chrono::milliseconds(1));
      if (a) a->advance();
      if (b) b->advance();
    }
  }
  static tcp::TcpTransferPtr transfer(std::string& bytes) {
    auto made = std::make_shared<tcp::TcpTransfer>();
    made->data = bytes.data(), made->bytes = static_cast<int64_t>(bytes.size());
    return made;
  }
  Sides sides;
  std::unique_ptr<Connection> a, b;
};

TEST(CommunicatorTcpFailures, a_message_longer_than_its_receive_ends_the_connection) {
  Pair pair;
  std::string sent(100, 'x'), room(10, ' ');
  pair.a->send(7, 1, Pair::transfer(sent));
  pair.b->recv(7, 1, Pair::transfer(room));
  pair.advance_until([&] { return !pair.b->lost().empty(); });
  expect_part(pair.b->lost(), "it sent 100 bytes where 10 were expected");
}

TEST(CommunicatorTcpFailures, what_was_sent_before_a_connection_closed_arrives) {
  Pair pair;
  std::string sent(50000, 'x'), room(50000, ' '), more(1, ' ');
  const auto sending = Pair::transfer(sent), receiving = Pair::transfer(room), missing = Pair::transfer(more);
  pair.a->send(7, 1, sending);
  pair.advance_until([&] { return sending->done(); });
  pair.a.reset();
  pair.b->recv(7, 1, receiving);
  pair.b->recv(7, 1, missing);
  pair.advance_until([&] { return !pair.b->lost().empty(); });
  EXPECT_TRUE(receiving->done());
  EXPECT_EQ(room, sent);
  EXPECT_FALSE(missing->done());
  expect_part(pair.b->lost(), "the connection to rank 0 (pid ");
}

}  // namespace
}  // namespace drivetrain
