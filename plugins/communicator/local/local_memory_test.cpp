// communicator/local: memory that grows, limits that are named, and what is refused of a peer's memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <csignal>
#include <memory>

#include <drivetrain/testkit/communicator/failures.h>
#include <drivetrain/testkit/communicator/ranks.h>
#include "conformance/communicator/linked.h"
#include "host.h"
#include "pairs.h"
#include "support/waiting.h"

namespace drivetrain::test {
namespace {

constexpr int64_t kOneMegabyte = 1 << 20;

TEST(CommunicatorLocalMemory, freed_blocks_are_joined_and_used_again) {
  local::AddressBook book;
  local::SharedMemory memory(book, 0, kOneMegabyte);
  const int64_t a = memory.allocate(5000).offset, b = memory.allocate(1).offset, c = memory.allocate(100).offset;
  EXPECT_EQ(b - a, 8192);
  EXPECT_EQ(c - b, 4096);
  memory.release(a);
  memory.release(c);
  memory.release(b);
  EXPECT_EQ(memory.allocate(kOneMegabyte - local::SharedMemory::kHeadBytes).offset, a);
  expect_part(error_of([&] { memory.allocate(1); }), "no block of 4096 bytes left in this rank's shared memory");
}

TEST(CommunicatorLocalMemory, a_lent_block_is_free_when_all_its_users_let_go) {
  local::AddressBook book;
  local::SharedMemory memory(book, 0, kOneMegabyte);
  const local::Block block = memory.allocate(600 << 10, 2);
  EXPECT_NE(error_of([&] { memory.allocate(600 << 10, 2); }), "");
  local::SharedMemory::release(block.address);
  EXPECT_NE(error_of([&] { memory.allocate(600 << 10); }), "");
  local::SharedMemory::release(block.address);
  EXPECT_EQ(memory.allocate(600 << 10, 1).offset, block.offset);
}

// Blocks lie in one segment each; what is freed of two neighbours is not joined.
TEST(CommunicatorLocalMemory, it_grows_by_segments_as_it_is_asked) {
  local::AddressBook book;
  local::SharedMemory memory(book, 3, int64_t{1} << 36);
  std::vector<local::Block> blocks;
  const local::Segment* const first = &memory.first();
  for (const int64_t bytes : {int64_t{1} << 20, int64_t{40} << 20, int64_t{300} << 20, int64_t{5} << 30}) {
    blocks.push_back(memory.allocate(bytes));
    EXPECT_NE(book.find({3, blocks.back().offset}, bytes), nullptr);
  }
  EXPECT_EQ(&memory.first(), first) << "threads that wait look at its head meanwhile";
  EXPECT_EQ(memory.head(), first->mapping()->base());
  for (const local::Block& block : blocks) {
    const local::Place place = book.place_of(block.address + 7);
    EXPECT_EQ(place.rank, 3);
    EXPECT_EQ(place.offset, block.offset + 7);
    EXPECT_EQ(book.find(place, 1), block.address + 7);
    block.address[9] = 1;
  }
  for (const local::Block& block : blocks) memory.release(block.offset);
  EXPECT_LT(blocks.back().offset, int64_t{1} << 30) << "segments follow each other";
  const int64_t nowhere = blocks[1].offset + (int64_t{100} << 20);
  EXPECT_EQ(book.find({3, nowhere}, int64_t{300} << 20), nullptr) << "bytes of two segments";
  EXPECT_EQ(book.find({2, 0}, 1), nullptr);
  EXPECT_EQ(book.find({3, -1}, 1), nullptr);
  EXPECT_EQ(book.find({3, 0}, int64_t{1} << 60), nullptr);
}

TEST(CommunicatorLocalMemory, a_segment_that_does_not_fit_the_address_space_is_refused_with_the_figure) {
  const std::string error = error_of([] { local::Segment(int64_t{1} << 50, local::random_token()); });
  expect_part(error, "cannot map 1125899906842624 bytes of shared memory");
  expect_part(error, "ulimit -v");
}

TEST(CommunicatorLocalMemory, too_few_open_files_are_named_with_the_figure) {
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none = {0, before.rlim_max};  // for new files; those that are open stay
  setrlimit(RLIMIT_NOFILE, &none);
  const std::string error = error_of([] { local::Segment(kOneMegabyte, {}); });
  setrlimit(RLIMIT_NOFILE, &before);
  expect_part(error, "(at most 0 open files; raise it with `ulimit -n`)");
}

// In a child, so that the limit stays there.
std::string error_under_limit(decltype(RLIMIT_AS) which, rlim_t bytes, int64_t wanted) {
  const auto ended = run_processes(1, [&](Rank&) {
    const rlimit limit{bytes, bytes};
    setrlimit(which, &limit);
    local::AddressBook book;
    local::SharedMemory memory(book, 0, int64_t{1} << 40);
    for (int i = 0; i < 3; ++i) memory.allocate(int64_t{20} << 20).address[5] = 1;
    memory.allocate(wanted);
  });
  return ended[0].error;
}

TEST(CommunicatorLocalMemory, a_limit_is_fitted_and_then_named_with_the_figure) {
  const rlim_t files = rlim_t{30} << 20;
  EXPECT_EQ(error_under_limit(RLIMIT_FSIZE, files, int64_t{29} << 20), "");
  const std::string file = error_under_limit(RLIMIT_FSIZE, files, int64_t{40} << 20);
  for (const char* part : {"41947136 bytes", "31457280 bytes", "ulimit -f unlimited"}) expect_part(file, part);
  const std::string space = error_under_limit(RLIMIT_AS, rlim_t{200} << 30, int64_t{300} << 30);
  for (const char* part : {"322122551296 bytes", "214748364800 bytes", "ulimit -v unlimited"}) expect_part(space, part);
}

// Of a ring of messages memory is taken for what is unread at one time, however much goes through it.
TEST(CommunicatorLocalMemory, messages_take_memory_for_what_is_unread_at_one_time) {
  const auto ring = std::make_unique<local::Ring>();  // all zero
  const auto transfer = [&](bool sending, int value) {
    local::Transfer t;
    t.sending = sending;
    t.tensor = at::full({5 * local::Ring::kSlotBytes}, value, at::TensorOptions(at::kByte));
    local::advance(t, *ring);
    EXPECT_TRUE(t.finished) << t.mismatch;
    return t.tensor;
  };
  transfer(true, 1);
  for (int i = 2; i <= 50; ++i) {
    transfer(true, i);  // the one before is still unread
    EXPECT_TRUE(at::equal(transfer(false, 0), at::full({5 * local::Ring::kSlotBytes}, i - 1, at::kByte))) << i;
  }
  for (uint32_t place = 0; place < local::Ring::kSlots; ++place)
    EXPECT_EQ(ring->data[place][0] != 0, place < 10) << "place " << place;
}

TEST(CommunicatorLocalMemory, a_full_ring_waits_and_goes_on_in_order) {
  const auto ring = std::make_unique<local::Ring>();
  const at::Tensor values = at::arange(3 * local::Ring::kSlots * local::Ring::kSlotBytes / 8, at::kLong);
  local::Transfer send, receive;
  send.sending = true, send.tensor = values, receive.tensor = at::zeros_like(values);
  while (!receive.finished) {
    while (local::advance(send, *ring)) continue;
    EXPECT_LE(ring->sent - ring->taken, local::Ring::kSlots);
    EXPECT_TRUE(local::advance(receive, *ring));
  }
  EXPECT_TRUE(send.finished && at::equal(receive.tensor, values));
}

// ---- what a peer says of its memory ----

std::string refusal_of(pid_t pid, int fd, int64_t bytes, const local::Token& token) {
  return error_of([&] { local::map_peer_segment({pid, fd, bytes, token}); });
}

int memory_file(const char* name, int64_t bytes, int seals) {
  const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(ftruncate(fd, bytes), 0);
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

// Another process that lives as long as the object and has what this one has open.
struct Child {
  const pid_t pid = fork();
  Child() {
    if (pid == 0)
      for (;;) pause();
  }
  ~Child() { kill(pid, SIGKILL), waitpid(pid, nullptr, 0); }
};

TEST(CommunicatorLocalTrust, only_a_sealed_memory_file_of_this_run_and_user_is_mapped) {
  const local::Token token = local::random_token();
  const local::Segment good(kOneMegabyte, token);
  const char* name = "drivetrain-communicator";
  constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const std::string path = "/tmp/drivetrain_local_memory_test_" + std::to_string(getpid());
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600), zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(ftruncate(file, kOneMegabyte), 0);
  const int growing = memory_file(name, kOneMegabyte, F_SEAL_SHRINK), other = memory_file("x", kOneMegabyte, kSize);
  const int empty = memory_file(name, kOneMegabyte, kSize);
  {
    const Child child;
    const auto refusal = [&](int fd, int64_t bytes = kOneMegabyte) { return refusal_of(child.pid, fd, bytes, token); };
    EXPECT_EQ(refusal(good.fd()), "");
    expect_part(refusal(good.fd(), 2 * kOneMegabyte), "it has 1048576 bytes where 2097152 were announced");
    expect_part(refusal(good.fd(), 4096), "it has 1048576 bytes where 4096 were announced");
    for (const int64_t bytes : {int64_t{0}, int64_t{-4096}, int64_t{100}})
      expect_part(refusal(good.fd(), bytes), "announced");
    expect_part(refusal(file), "wanted an anonymous file named drivetrain-communicator, found " + path);
    expect_part(refusal(ends[0]), "found pipe:[");
    expect_part(refusal(zero), "found /dev/zero");
    expect_part(refusal(other), "found /memfd:x");
    expect_part(refusal(growing), "not sealed against a change of size");
    expect_part(refusal(empty), "does not carry the token that was announced");
    expect_part(refusal(9999), "No such file");
    expect_part(refusal(-1), "descriptor -1");
    expect_part(refusal_of(child.pid, good.fd(), kOneMegabyte, local::random_token()), "does not carry the token");
  }
  expect_part(refusal_of(-1, 3, kOneMegabyte, token), "no such process");
  for (const int fd : {ends[0], ends[1], file, zero, growing, other, empty}) close(fd);
  std::remove(path.c_str());
}

TEST(CommunicatorLocalTrust, a_place_outside_of_a_peers_memory_is_refused) {
  const auto store = make_local_store();
  Rank first(0, 2, *store, usual_options), second(1, 2, *store, usual_options);
  for (const local::Place& place :
       {local::Place{1, -8}, {1, int64_t{16} << 20}, {1, int64_t{1} << 62}, {2, 0}, {0, 0}}) {
    local::Host host(first.services, {}), peer(second.services, {});  // a refusal ends the run of its host
    host.connect(1, "test", {0, 1});
    EXPECT_NE(host.address_of({1, 4096}, 4096, 1), nullptr);
    const int64_t bytes = place.rank == 0 ? int64_t{1} << 40 : 8;
    expect_part(error_of([&] { host.address_of(place, bytes, 1); }),
                concat("rank 1 named ", bytes, " bytes at offset ", place.offset, " of rank ", place.rank));
  }
}

// As of a buffer that was made in another group; in the middle of moving calls, where nobody can wait for a rank.
TEST(CommunicatorLocalTrust, memory_of_a_rank_that_was_not_met_is_mapped_if_there_is_any) {
  const auto store = make_local_store();
  Rank first(0, 3, *store, usual_options), second(1, 3, *store, usual_options), third(2, 3, *store, usual_options);
  local::Host host(first.services, {}), other(third.services, {});
  {
    const std::lock_guard lock(host.mutex());
    EXPECT_NE(host.address_of({2, 4096}, 4096, 2), nullptr);
    expect_part(error_of([&] {
                  host.address_of({1, 4096}, 8, 2);
                }),
                "rank 2 named memory of rank 1, which has announced none");
  }
}

TEST(CommunicatorLocalTrust, a_peer_that_announces_itself_otherwise_is_refused) {
  for (const std::string said : {"", "1 2 3 x", "-5 0 7 16777216 1-2 0, m n"}) {
    const auto store = make_local_store();
    Rank first(0, 2, *store, usual_options);
    local::Host host(first.services, {});
    host.publish("file/1", said);
    expect_part(error_of([&] { host.connect(1, "test", {0, 1}); }), "rank 1");
  }
}

TEST(CommunicatorLocalTrust, another_users_process_is_refused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user here";
  const local::Token token = local::random_token();
  const local::Segment good(kOneMegabyte, token);
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(1);
    for (;;) pause();
  }
  std::string refusal;
  eventually([&] { return !(refusal = refusal_of(child, good.fd(), kOneMegabyte, token)).empty(); });
  expect_part(refusal, "user 65534's, this rank is user 0's");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace drivetrain::test
