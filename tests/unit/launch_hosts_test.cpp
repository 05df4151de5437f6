// Hostfiles, filters, what ssh is given, and what launcher and agent say to each other: the parts of a run over several
// hosts that need no host. tests/hosts has the rest.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>

#include "cli/usage_error.h"
#include "launch/config_document.h"
#include "launch/connection_watch.h"
#include "launch/environment.h"
#include "launch/host_connection.h"
#include "launch/hosts_request.h"
#include "launch/meeting.h"
#include "launch/message.h"
#include "launch/orders.h"
#include "launch/same_host.h"
#include "launch/visible_devices.h"

namespace drivetrain::program {
namespace {

using Words = std::vector<std::string>;
using Slots = std::vector<int>;

std::string text_of(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += host.name + ":";
    for (const int slot : host.slots) text += std::to_string(slot);
    text += " ";
  }
  return text;
}

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "not refused";
}

#define EXPECT_REFUSED(call, part)                         \
  do {                                                     \
    const std::string said = refusal([&] { call; });       \
    EXPECT_NE(said.find(part), std::string::npos) << said; \
  } while (false)

TEST(HostList, hostfiles_as_deepspeed_and_mpi_write_them) {
  EXPECT_EQ(text_of(parse_hostfile("# two\n\n  b slots=2 # the fast one\r\na\tslots=1\n", "f")), "b:01 a:0 ");
  EXPECT_EQ(text_of(parse_hostfile("fd00::1 slots=1\n[fe80::2%eth0] slots=1", "f")), "fd00::1:0 fe80::2%eth0:0 ");
}

TEST(HostList, what_is_no_hostfile_is_refused_with_its_line) {
  EXPECT_REFUSED(parse_hostfile("", "f"), "the hostfile f names no host");
  EXPECT_REFUSED(parse_hostfile("a slots=1\nb\n", "f"), "f:2: wanted slots=K after the host, got nothing");
  EXPECT_REFUSED(parse_hostfile("a 4\n", "f"), "got \"4\"");
  EXPECT_REFUSED(parse_hostfile("a slots=-1\n", "f"), "whole number from 1 to 4096");
  EXPECT_REFUSED(parse_hostfile("a slots=\n", "f"), "whole number from 1 to 4096");
  EXPECT_REFUSED(parse_hostfile("[fd00::1] slots=1\nfd00::1 slots=2\n", "f"), "stands here and in line 1");
  EXPECT_REFUSED(parse_hostfile("-l slots=1\n", "f"), "no host name");
  EXPECT_REFUSED(parse_hostfile("a;b slots=1\n", "f"), "no host name");
  EXPECT_REFUSED(read_hostfile("/no/such/file"), "cannot read the hostfile");
  EXPECT_REFUSED(read_hostfile("/proc/self"), "which is a folder");
  EXPECT_REFUSED(parse_hostfile("worker-A slots=1\nWorker-a slots=2\n", "f"),
                 "f:2: the host Worker-a stands here and in");
}

TEST(HostList, what_has_no_end_or_no_writer_is_refused) {
  EXPECT_REFUSED(read_hostfile("/dev/zero"), "which is a device");
  const std::string fifo = testing::TempDir() + "/hostfile_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_REFUSED(read_pipe(fifo, "the hostfile " + fifo, 0.1), "gave 0 bytes and no end within 0.1 s");
  unlink(fifo.c_str());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "a slots=2\n", 10), 10);
  close(ends[1]);
  EXPECT_EQ(text_of(read_hostfile("/dev/fd/" + std::to_string(ends[0]))), "a:01 ") << "as of <(command)";
  close(ends[0]);
}

TEST(HostList, a_hundred_thousand_lines_are_compared_in_no_time) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "worker-" + std::to_string(i) + " slots=1\n";
  EXPECT_EQ(parse_hostfile(text, "f").size(), 100'000u);
  EXPECT_REFUSED(parse_hostfile(text + "worker-77 slots=1\n", "f"),
                 "f:100001: the host worker-77 stands here and in line 78");
}

HostsRequest two_hosts(const std::string& first, const std::string& second) {
  HostsRequest request;
  request.hosts = parse_hostfile(first + " slots=1\n# a comment\n" + second + " slots=2\n", "f");
  request.hostfile = "f", request.over_ssh = true;
  return request;
}

TEST(SameHost, one_host_by_name_and_by_address_is_refused) {
  for (const auto& [first, second] :
       {std::pair{"localhost", "127.0.0.1"}, {"127.0.0.1", "::1"}, {"[::1]", "LOCALHOST"}})
    EXPECT_REFUSED(refuse_same_hosts(two_hosts(first, second)), "(both are this host); give it one line with all its");
  EXPECT_REFUSED(refuse_same_hosts(two_hosts("localhost", "127.0.0.1")),
                 "f:3: the host 127.0.0.1 is the host localhost of line 1 (both are");
  HostsRequest spare = two_hosts("localhost", "192.0.2.1");
  spare.spares = {{"127.0.0.1", {0}}};
  EXPECT_REFUSED(refuse_same_hosts(spare), "--spare: the host 127.0.0.1 is the host localhost (both are this host)");
}

// Aliases of ssh's configuration have no address, and each loopback address may be a host of its own.
TEST(SameHost, hosts_with_other_addresses_or_none_are_not) {
  for (const char* const second : {"127.0.0.2", "192.0.2.1", "no-such-host.invalid"})
    refuse_same_hosts(two_hosts("127.0.0.1", second));
  refuse_same_hosts(two_hosts("127.0.0.2", "127.0.0.3"));
  HostsRequest own_start = two_hosts("localhost", "127.0.0.1");
  own_start.over_ssh = false;
  refuse_same_hosts(own_start);
}

TEST(SameHost, one_address_of_several_is_enough) {
  const HostsRequest request = two_hosts("a", "b");
  EXPECT_EQ(same_host_problem(request, {{"192.0.2.1"}, {"192.0.2.2"}}), "");
  EXPECT_EQ(same_host_problem(request, {{}, {}}), "");
  EXPECT_EQ(same_host_problem(request, {{"192.0.2.1", "fd00::1"}, {"192.0.2.2", "fd00::1"}}),
            "f:3: the host b is the host a of line 1 (both are fd00::1); give it one line with all its slots");
}

// The examples of DeepSpeed's own help texts, and the order of the hostfile whatever the filter's is.
TEST(HostList, filters_as_deepspeeds) {
  const auto hosts = parse_hostfile("worker-0 slots=4\nworker-1 slots=4\n", "f");
  EXPECT_EQ(text_of(include_hosts(hosts, "worker-0@worker-1:0,2")), "worker-0:0123 worker-1:02 ");
  EXPECT_EQ(text_of(include_hosts(hosts, "worker-1:2,0,2@worker-0:3")), "worker-0:3 worker-1:02 ");
  EXPECT_EQ(text_of(include_hosts(hosts, "worker-1:1@worker-1:3")), "worker-1:13 ");
  EXPECT_EQ(text_of(include_hosts(hosts, "Worker-0:1@WORKER-0:2")), "worker-0:12 ");
  EXPECT_EQ(text_of(exclude_hosts(hosts, "Worker-0")), "worker-1:0123 ");
  EXPECT_EQ(text_of(exclude_hosts(hosts, "worker-1:0")), "worker-0:0123 worker-1:123 ");
  EXPECT_EQ(text_of(exclude_hosts(hosts, "worker-0")), "worker-1:0123 ");
  EXPECT_EQ(text_of(exclude_hosts(hosts, "worker-0:0,1,2,3")), "worker-1:0123 ");
  EXPECT_EQ(text_of(first_hosts(hosts, 1, 2)), "worker-0:01 ");
  EXPECT_EQ(text_of(first_hosts(hosts, 0, 0)), text_of(hosts));
  const auto v6 = parse_hostfile("fd00::1 slots=2\nfd00::2 slots=2\n", "f");
  EXPECT_EQ(text_of(include_hosts(v6, "[fd00::2]:1")), "fd00::2:1 ");
  EXPECT_EQ(ranks_of(v6), 4);
}

TEST(HostList, filters_that_fit_no_host_are_refused) {
  const auto hosts = parse_hostfile("a slots=2\nb slots=2\n", "f");
  EXPECT_REFUSED(include_hosts(hosts, "c"), "--include: there is no host c in the hostfile");
  EXPECT_REFUSED(include_hosts(hosts, "a:2"), "the host a has no slot 2; it has 2");
  EXPECT_REFUSED(include_hosts(hosts, "a:"), "is no number of a slot");
  EXPECT_REFUSED(include_hosts(hosts, "a:0,"), "is no number of a slot");
  EXPECT_REFUSED(include_hosts(hosts, "a@@b"), "is no host name");
  EXPECT_REFUSED(include_hosts(hosts, "fd00::1:0"), "stands in brackets");
  EXPECT_REFUSED(include_hosts(hosts, "[fd00::1"), "has [ and no ]");
  EXPECT_REFUSED(exclude_hosts(hosts, "a@b"), "--exclude leaves no slot");
  EXPECT_REFUSED(first_hosts(hosts, 3, 0), "the hostfile has 2 hosts");
  EXPECT_REFUSED(first_hosts(hosts, 2, 3), "the host a has slots=2");
}

TEST(ShellText, words_come_back_as_they_were) {
  for (const char* const word : {"plain", "", "two words", "it's", "$HOME `x`", "a\\b", "\"q\"", "*"})
    EXPECT_EQ(shell_words(shell_quoted(word), "--x"), Words{word}) << word;
  EXPECT_EQ(shell_words(" -o  'A B' \"c \\\"d\\\"\" e\\ f ", "--x"), (Words{"-o", "A B", "c \"d\"", "e f"}));
  EXPECT_REFUSED(shell_words("a 'b", "--launcher_args"), "--launcher_args: the quote ' in");
  EXPECT_EQ(shell_line({"ssh", "-o", "A=b", "exec '/x y/d' agent"}), "ssh -o A=b 'exec '\\''/x y/d'\\'' agent'");
}

// ssh takes the first value of an option: the user's. What stands behind "--" is no option, whatever its name.
TEST(SshCommand, options_of_the_user_go_first) {
  HostsRequest request;
  request.launcher_args = {"-o", "ConnectTimeout=99"};
  request.ssh_port = 2222;
  const Words words = ssh_command(request, "a", "/opt/my dt/bin/drivetrain");
  EXPECT_EQ(Words(words.begin(), words.begin() + 5), (Words{"ssh", "-o", "ConnectTimeout=99", "-p", "2222"}));
  EXPECT_EQ(Words(words.end() - 3, words.end()), (Words{"--", "a", "exec '/opt/my dt/bin/drivetrain' agent"}));
}

TEST(Environment, files_have_names_and_values) {
  EXPECT_EQ(parse_environment_file("# x\nA=1\r\n\n  B=a b=c\nC=\n", "f"), (Words{"A=1", "B=a b=c", "C="}));
  EXPECT_REFUSED(parse_environment_file("A=1\nexport B=2\n", "f"), "f:2: wanted NAME=VALUE");
  EXPECT_REFUSED(parse_environment_file("1A=1\n", "f"), "f:1: wanted NAME=VALUE");
  EXPECT_REFUSED(parse_environment_file(std::string("A=1\nB=2\0x\n", 10), "f"), "f:2: the value of B has a zero byte");
  for (const std::string name : {"RANK", "MASTER_PORT", "DRIVETRAIN_RUN_TOKEN", "DRIVETRAIN_LAUNCH_ID"}) {
    EXPECT_REFUSED(parse_environment_file(name + "=3\n", "f"), "f:1: " + name + ": launch itself gives that");
    EXPECT_REFUSED(environment_of_option({name + "=3"}), "--env " + name + ": launch itself gives that");
  }
  setenv("LAUNCH_HOSTS_TEST", "here", 1);
  EXPECT_EQ(environment_of_option({"LAUNCH_HOSTS_TEST", "X=a=b"}), (Words{"LAUNCH_HOSTS_TEST=here", "X=a=b"}));
  EXPECT_REFUSED(environment_of_option({"LAUNCH_HOSTS_NOT_SET"}), "the variable is not set here");
  EXPECT_REFUSED(environment_of_option({"X=a", "Y=b", "X=c"}),
                 "--env X is given twice, as \"X=a\" and \"X=c\", with two values: leave out one of them");
  for (const std::string name : {"LAUNCH_HOSTS_TEST", "LAUNCH_HOSTS_NOT_SET"})  // of another value here, and of none
    for (const Words& both : {Words{name, name + "=2"}, Words{name + "=2", name}})
      EXPECT_REFUSED(environment_of_option(both),
                     "--env " + name + " is given twice, as \"" + both[0] + "\" and \"" + both[1] + "\"");
  EXPECT_EQ(environment_of_option({"X=a", "LAUNCH_HOSTS_TEST", "LAUNCH_HOSTS_TEST=here", "X=a"}).size(), 4u);
}

TEST(VisibleDevices, slots_are_places_in_what_the_host_shows) {
  EXPECT_EQ(devices_of_slots({0, 1}, nullptr), "");
  EXPECT_EQ(devices_of_slots({0, 1}, "5,6"), "");
  EXPECT_EQ(devices_of_slots({1, 3}, nullptr), "1,3");
  EXPECT_EQ(devices_of_slots({1}, "GPU-aa,GPU-bb"), "GPU-bb");
  EXPECT_EQ(devices_of_slots({1}, "MIG-1/2/3,MIG-4/5/6"), "MIG-4/5/6");
  EXPECT_EQ(devices_of_slots({2}, "0,1"), "");
}

std::string refusal_of_slots(const std::vector<int>& slots, const char* visible) {
  try {
    check_slots(slots, visible);
  } catch (const HostError& e) {
    return std::to_string(e.code) + ": " + e.what();
  }
  return "";
}

TEST(VisibleDevices, a_chosen_slot_that_the_host_does_not_show_is_refused) {
  EXPECT_EQ(
      refusal_of_slots({2, 3}, "0,1,2"),
      "2: slot 3 was chosen, and CUDA_VISIBLE_DEVICES=0,1,2 there shows 3 GPUs, slot 0 to slot 2; choose of these, "
      "or change the variable");
  EXPECT_EQ(
      refusal_of_slots({1}, "GPU-aa"),
      "2: slot 1 was chosen, and CUDA_VISIBLE_DEVICES=GPU-aa there shows 1 GPU, slot 0; choose of these, or change "
      "the variable");
  EXPECT_EQ(refusal_of_slots({1, 0}, "4,5"), "");
  EXPECT_EQ(refusal_of_slots({5}, nullptr), "");         // every GPU of the host
  EXPECT_EQ(refusal_of_slots({0, 1, 2, 3}, "0,1"), "");  // nobody chose: ranks on CPUs, or CUDA refuses
  for (const char* none : {"", "-1"}) EXPECT_EQ(refusal_of_slots({1, 3}, none), "");
}

TEST(VisibleDevices, a_rank_sees_its_own_mig_instance_alone) {
  EXPECT_EQ(own_device("MIG-a,MIG-b,MIG-c", 1), "MIG-b");
  EXPECT_EQ(own_device("GPU-x,MIG-b", 0), "GPU-x");
  EXPECT_EQ(own_device("MIG-a", 1), "");  // there is none for it
  for (const char* gpus : {"0,1", "GPU-x,GPU-y", ""}) EXPECT_EQ(own_device(gpus, 1), "");
}

TEST(Message, any_bytes_arrive_whatever_pieces_they_come_in) {
  const std::string any("\0\n o 1 3\nabc", 13);
  const std::string stream = "Welcome to host b!\n" + std::string(kAgentBegins) + encoded({Message::out, 3, any}) +
                             encoded({Message::bye, 0, ""});
  for (const size_t piece : {size_t{1}, size_t{7}, stream.size()}) {
    MessageReader reader(true);
    std::vector<Message> got;
    for (size_t at = 0; at < stream.size(); at += piece) {
      reader.take(stream.substr(at, piece));
      while (auto message = reader.next()) got.push_back(*message);
    }
    ASSERT_EQ(got.size(), 2U);
    EXPECT_EQ(got[0].type, Message::out);
    EXPECT_EQ(got[0].rank, 3);
    EXPECT_EQ(got[0].text, any);
    EXPECT_EQ(got[1].type, Message::bye);
    EXPECT_EQ(reader.before_mark(), "Welcome to host b!\n");
  }
}

TEST(Message, what_is_none_is_refused) {
  MessageReader reader(false);
  reader.take("GET / HTTP/1.1\n");
  EXPECT_THROW(reader.next(), std::runtime_error);
  MessageReader long_line(false);
  long_line.take(std::string(100, 'x'));
  EXPECT_THROW(long_line.next(), std::runtime_error);
  MessageReader talks_on(true);
  talks_on.take(std::string(2 << 20, 'x'));
  EXPECT_THROW(talks_on.next(), std::runtime_error);
}

TEST(Message, ends_and_orders_arrive_as_they_were) {
  const RankEnd end = rank_end_of(message_of({7, 137, true, true, 0, "did not go on"}));
  EXPECT_EQ(end.rank, 7);
  EXPECT_EQ(end.code, 137);
  EXPECT_TRUE(end.killed && end.by_launcher);
  EXPECT_EQ(end.fault, "did not go on");

  StartOrder order;
  order.first = 4, order.world = 8, order.slots = {1, 3}, order.master_addr = "fd00::1", order.master_port = 5;
  order.token = "t", order.deadlines.peers_s = 0.5, order.begun_folder = "/a folder", order.may_stand_s = 15;
  order.master_listens = false, order.keeps_flight_records = true, order.rank_0_err = 2;
  order.environment = {"A=", "B=x\ny"}, order.command = {"p", "", "--set"};
  const StartOrder same = StartOrder::of(order.text());
  EXPECT_EQ(same.text(), order.text());
  EXPECT_EQ(same.slots, (Slots{1, 3}));
  EXPECT_EQ(same.environment, order.environment);
  EXPECT_EQ(same.command, order.command);
  EXPECT_EQ(same.deadlines.peers_s, 0.5);
  EXPECT_EQ(std::tuple(same.begun_folder, same.may_stand_s, same.master_listens, same.keeps_flight_records,
                       same.rank_0_out, same.rank_0_err),
            std::tuple("/a folder", 15, false, true, -1, 2));
  PrepareOrder prepare{"/w", "", "/p", true, "", 0, {"10.0.0.1"}};
  prepare.files = {"ds.json"}, prepare.is_again = true, prepare.environment = {"A=b"};
  EXPECT_EQ(PrepareOrder::of(prepare.text()).text(), prepare.text());
  EXPECT_THROW(StartOrder::of("4"), std::exception);
}

TEST(Outbox, keeps_what_a_slow_reader_does_not_take_yet) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Descriptor from(ends[0]);
  Outbox box{Descriptor(ends[1])};
  const std::string much(1 << 20, 'm');
  box.put_bytes(much);
  EXPECT_FALSE(box.is_empty());
  std::string got;
  while (got.size() < much.size()) {
    ASSERT_TRUE(read_available(from.get(), got));
    box.flush();
  }
  EXPECT_EQ(got, much);
  EXPECT_TRUE(box.is_empty());
}

// Lines of /proc/net/tcp and tcp6, as Linux prints them.
constexpr const char* kSession = "10.77.0.1 60250 10.77.0.2 22";
std::string line_of_table(const std::string& addresses, const std::string& timer, const std::string& end) {
  return "   1: " + addresses + " 01 00000134:00000000 " + timer + "     0        " + end +
         " 945978 3 0 21 4 31 26 -1\n";
}

TEST(ConnectionWatch, a_cut_link_is_one_whose_packets_are_sent_again_and_again) {
  const std::string ours = "02004D0A:0016 01004D0A:EB5A";
  const std::string ours_in_six = "0000000000000000FFFF000002004D0A:0016 0000000000000000FFFF000001004D0A:EB5A";
  const std::string others = "02004D0A:0016 01004D0A:EB5B";
  for (const std::string& addresses : {ours, ours_in_six}) {
    EXPECT_FALSE(is_cut(line_of_table(addresses, "01:00000014 00000000", "0"), kSession));
    EXPECT_FALSE(is_cut(line_of_table(addresses, "01:00000014 00000002", "0"), kSession));
    EXPECT_TRUE(is_cut(line_of_table(addresses, "01:00000297 00000005", "0"), kSession));
    EXPECT_FALSE(is_cut(line_of_table(addresses, "02:00000297 00000000", "9"), kSession));  // keep-alive
    EXPECT_FALSE(is_cut(line_of_table(addresses, "04:00000297 00000000", "1"), kSession));  // a reader that waits
    EXPECT_TRUE(is_cut(line_of_table(addresses, "04:00000297 00000000", "5"), kSession));   // no route any more
  }
  EXPECT_FALSE(is_cut(line_of_table(others, "01:00000297 00000009", "0"), kSession));
  EXPECT_FALSE(is_cut("", kSession));
  EXPECT_FALSE(is_cut(line_of_table(ours, "01:00000297 00000009", "0"), "nonsense"));
  EXPECT_TRUE(is_cut(line_of_table("000000FD000000000000000001000000:0016 000000FD000000000000000002000000:EB5A",
                                   "01:00000297 00000006", "0"),
                     "fd00::2 60250 fd00::1 22"));
}

}  // namespace
}  // namespace drivetrain::program
