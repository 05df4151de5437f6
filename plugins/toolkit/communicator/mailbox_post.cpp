#include "mailbox_post.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/communicator/call.h>
#include <drivetrain/toolkit/standstill.h>

namespace drivetrain::toolkit {
namespace mailbox_post {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kShortest(20), kLongest(2000);

// The first piece of a message says how many there are: "3:" and bytes.
std::string part_name(const std::string& name, size_t part) { return part == 0 ? name : concat(name, "+", part); }

}  // namespace mailbox_post

Mailbox::~Mailbox() = default;

void MailboxCommunicator::Post::give_up(const std::string& cause, const std::string& where) {
  raise(cause);
  throw_if_aborted(where);
  throw fail(ErrorCode::communication, plugin_, ", ", where, ": ", cause);
}

void MailboxCommunicator::Post::wait(const std::function<bool()>& done,
                                     const std::function<std::vector<int64_t>()>& missing, const std::string& where,
                                     const std::vector<int64_t>& members) {
  using namespace mailbox_post;
  auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s());
  auto look = Clock::now();
  auto pause = kShortest;
  take_over();  // another rank may have given up on this one
  throw_if_aborted(where);
  while (!done()) {
    if (const auto now = Clock::now(); now >= look) {
      look = now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(period_s()));
      take_over();
      throw_if_aborted(where);
      std::string gone;
      for (const int64_t rank : missing())
        if (gone.empty()) gone = closed(rank);
      if (!gone.empty() && !done()) give_up(gone, where);  // what it sent before it left has come by now
      if (now > deadline) give_up(late(missing(), members, where), where);
    }
    deadline += standstill_in([&] { std::this_thread::sleep_for(pause); });
    pause = std::min(2 * pause, kLongest);
  }
}

void MailboxCommunicator::Post::meet(const std::vector<int64_t>& ranks, const std::string& label) {
  Call call;
  call.kind = CallKind::make_group;
  arrive(label);
  const auto missing = [&] { return absent(ranks, label); };
  wait([&] { return missing().empty(); }, missing, call.where(label), ranks);
}

void MailboxCommunicator::Post::send(int64_t to, const std::string& name, const std::string& bytes) {
  using namespace mailbox_post;
  constexpr size_t kRoom = Mailbox::kMostBytes - 32;
  const size_t parts = std::max<size_t>(1, (bytes.size() + kRoom - 1) / kRoom);
  for (size_t part = 0; part < parts; ++part) {
    const std::string head = part == 0 ? concat(parts, ":") : "";
    mailbox_->put(to, part_name(key(name), part), head + bytes.substr(part * kRoom, kRoom));
  }
}

std::vector<std::string> MailboxCommunicator::Post::receive(const std::vector<int64_t>& from, const std::string& name,
                                                            const std::string& where,
                                                            const std::vector<int64_t>& members) {
  using namespace mailbox_post;
  struct Coming {
    std::string bytes;
    size_t parts = 1, here = 0;
  };
  std::vector<Coming> messages(from.size());
  const auto advance = [&](size_t i) {
    Coming& message = messages[i];
    while (message.here < message.parts) {
      const std::optional<std::string> part = mailbox_->take(from[i], part_name(key(name), message.here));
      if (!part) return false;
      size_t begin = 0;
      if (message.here++ == 0) {
        begin = part->find(':') + 1;
        std::from_chars(part->data(), part->data() + begin - 1, message.parts);
      }
      message.bytes.append(*part, begin);
    }
    return true;
  };
  const auto missing = [&] {
    std::vector<int64_t> list;
    for (size_t i = 0; i < from.size(); ++i)
      if (messages[i].here < messages[i].parts) list.push_back(from[i]);
    return list;
  };
  const auto all_are_here = [&] {
    bool all = true;
    for (size_t i = 0; i < from.size(); ++i) all &= advance(i);
    return all;
  };
  wait(all_are_here, missing, where, members);
  std::vector<std::string> bytes;
  for (Coming& message : messages) bytes.push_back(std::move(message.bytes));
  return bytes;
}

}  // namespace drivetrain::toolkit
