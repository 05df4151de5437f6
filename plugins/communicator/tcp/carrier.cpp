#include "carrier.h"

#include <algorithm>
#include <chrono>

#include <drivetrain/error.h>

#include "address.h"
#include "meeting.h"

namespace drivetrain::tcp {

using Clock = std::chrono::steady_clock;

TcpCarrier::TcpCarrier(const Services& services, std::optional<std::string> interface, double timeout_s)
    : services_(services), interface_(std::move(interface)), timeout_s_(timeout_s) {}

TcpCarrier::~TcpCarrier() = default;

int64_t TcpCarrier::open(const toolkit::Members& members, const std::function<void()>& meanwhile) {
  std::vector<int64_t> missing;
  {
    const std::lock_guard lock(mutex_);
    for (const int64_t rank : members.ranks)
      if (rank != services_.rank && !connections_.contains(rank)) missing.push_back(rank);
  }
  if (!missing.empty()) {
    Meeting meeting(context_, services_.store, members.key, services_.rank, missing,
                    own_address(interface_, services_));
    const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s_);
    for (int64_t times = 0; !meeting.done(); ++times) {
      meanwhile();
      meeting.advance();
      if (meeting.done()) break;
      if (Clock::now() > deadline)
        throw fail(ErrorCode::communication, "group \"", members.label, "\" was not connected within ", timeout_s_,
                   " s: ", meeting.missing(),
                   ". Look whether the hosts reach each other at these addresses (firewalls, routes), or choose other "
                   "ones with \"interface\"");
      pause(times);
    }
    const std::lock_guard lock(mutex_);
    for (auto& [rank, met] : meeting.take())
      connections_.emplace(rank, std::make_unique<Connection>(std::move(met.socket), met.who));
  }
  const std::lock_guard lock(mutex_);
  channels_[members.id] = members.ranks;
  return members.id;
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
