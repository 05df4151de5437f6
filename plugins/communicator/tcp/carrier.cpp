#include "carrier.h"

#include <algorithm>
#include <chrono>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/standstill.h>

#include "address.h"
#include "meeting.h"

namespace drivetrain::tcp {

using Clock = std::chrono::steady_clock;

TcpCarrier::TcpCarrier(const Services& services, std::optional<std::string> interface, double timeout_s, bool share)
    : services_(services), interface_(std::move(interface)), timeout_s_(timeout_s), share_(share) {}

TcpCarrier::~TcpCarrier() = default;

int64_t TcpCarrier::open(const toolkit::Members& members, const std::function<void()>& meanwhile) {
  std::vector<int64_t> missing;
  {
    const std::lock_guard lock(mutex_);
    for (const int64_t rank : members.ranks)
      if (rank != services_.rank && !connections_.contains(rank)) missing.push_back(rank);
    if (!room_ && !near(members).empty()) room_ = std::make_shared<Room>(services_.rank, services_.world_size);
  }
  if (!missing.empty()) connect(members, missing, meanwhile);
  const std::lock_guard lock(mutex_);
  channels_[members.id] = members.ranks;
  return members.id;
}

std::vector<int64_t> TcpCarrier::near(const toolkit::Members& members) const {
  std::vector<int64_t> ranks;
  const auto me = static_cast<size_t>(members.me);
  for (size_t i = 0; i < members.ranks.size() && share_; ++i)
    if (i != me && members.hosts[i] == members.hosts[me]) ranks.push_back(members.ranks[i]);
  return ranks;
}

void TcpCarrier::connect(const toolkit::Members& members, const std::vector<int64_t>& missing,
                         const std::function<void()>& meanwhile) {
  const std::shared_ptr<Room> shared = room();
  Meeting meeting(context_, services_.store, members.key, services_.rank, missing, own_address(interface_, services_),
                  shared ? shared->announcement() : "-");
  auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s_);
  for (int64_t times = 0; !meeting.done(); ++times) {
    meanwhile();
    meeting.advance();
    if (meeting.done()) break;
    if (Clock::now() > deadline)
      throw fail(ErrorCode::communication, "group \"", members.label, "\" was not connected within ", timeout_s_,
                 " s: ", meeting.missing(),
                 ". Look whether the hosts reach each other at these addresses (firewalls, routes), or choose other "
                 "ones with \"interface\"");
    deadline += standstill_in([&] { pause(times); });
  }
  const std::vector<int64_t> here = near(members);
  const std::lock_guard lock(mutex_);
  for (auto& [rank, met] : meeting.take()) {
    const bool is_near = std::find(here.begin(), here.end(), rank) != here.end();
    auto connection =
        std::make_unique<Connection>(std::move(met.socket), met.who, is_near ? Near{shared, rank} : Near{});
    try {
      if (is_near) shared->meet(rank, met.memory);
    } catch (const Error& e) {  // it may be gone again: who waits for it finds out why
      if (e.code() != ErrorCode::communication) throw;
      connection->lose(e.what());
    }
    connections_.emplace(rank, std::move(connection));
  }
}

std::shared_ptr<Room> TcpCarrier::room() {
  const std::lock_guard lock(mutex_);
  return room_;
}

std::shared_ptr<char> TcpCarrier::allocate(int64_t bytes) {
  const std::shared_ptr<Room> shared = room();
  if (!shared) return nullptr;
  const auto block = shared->allocate(bytes);
  return {block.address, [shared, offset = block.offset](char*) { shared->release(offset); }};
}

void TcpCarrier::close(int64_t channel) noexcept {
  for (const int64_t rank : channels_[channel])
    if (const auto found = connections_.find(rank); found != connections_.end()) found->second->forget(channel);
  channels_.erase(channel);
}

Connection& TcpCarrier::connection(int64_t channel, int index) {
  return *connections_.at(channels_.at(channel).at(static_cast<size_t>(index)));
}

toolkit::TransferPtr TcpCarrier::send(int64_t channel, int to, int tag, const void* data, int64_t bytes) {
  auto transfer = std::make_shared<TcpTransfer>();
  transfer->data = static_cast<char*>(const_cast<void*>(data));
  transfer->bytes = bytes;
  connection(channel, to).send(channel, tag, transfer);
  return transfer;
}

toolkit::TransferPtr TcpCarrier::recv(int64_t channel, int from, int tag, void* data, int64_t bytes) {
  auto transfer = std::make_shared<TcpTransfer>();
  transfer->data = static_cast<char*>(data);
  transfer->bytes = bytes;
  connection(channel, from).recv(channel, tag, transfer);
  return transfer;
}

toolkit::TransferPtr TcpCarrier::look(int64_t channel, int from, int tag, void* data, int64_t bytes) {
  auto transfer = std::make_shared<TcpTransfer>();
  transfer->data = static_cast<char*>(data);
  transfer->bytes = bytes;
  transfer->looks = true;
  connection(channel, from).recv(channel, tag, transfer);
  return transfer;
}

void TcpCarrier::flush() {
  for (auto& [rank, connection] : connections_) connection->flush();
}

void TcpCarrier::advance() {
  context_.poll();
  for (auto& [rank, connection] : connections_) connection->advance();
}

// Returns early when something arrives. The longest sleep is until the next look for an abort, about.
void TcpCarrier::pause(int64_t times) {
  context_.run_one_for(std::chrono::microseconds(std::min<int64_t>(20000, 500 + 500 * times)));
}

std::string TcpCarrier::lost(int64_t rank) {
  const auto found = connections_.find(rank);
  return found == connections_.end() ? "" : found->second->lost();
}

}  // namespace drivetrain::tcp
