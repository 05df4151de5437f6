// Messages over one TCP connection per pair of ranks that share a group, made when they share the first one.
//
// Ranks of one host leave each other long messages in shared memory; what they say about them goes over the connection,
// which is also how a rank that sleeps is woken and how the loss of one is noticed.
//
// There is no thread: connections move when `advance` is called, and `pause` sleeps until the kernel has something.
// Ownership, thread and errors: as toolkit::Carrier.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/services.h>

#include "connection.h"

namespace drivetrain::tcp {

class TcpCarrier final : public toolkit::Carrier {
 public:
  // `interface`: as in address.h.
  // `share`: ranks of one host use shared memory.
  TcpCarrier(const Services& services, std::optional<std::string> interface, double timeout_s, bool share);
  ~TcpCarrier() override;

  int64_t open(const toolkit::Members& members, const std::function<void()>& meanwhile) override;
  void close(int64_t channel) noexcept override;
  toolkit::TransferPtr send(int64_t channel, int to, int tag, const void* data, int64_t bytes) override;
  toolkit::TransferPtr recv(int64_t channel, int from, int tag, void* data, int64_t bytes) override;
  toolkit::TransferPtr look(int64_t channel, int from, int tag, void* data, int64_t bytes) override;
  int64_t most_bytes() const override { return int64_t{4} << 20; }  // so that a receiver copies while its sender does
  std::shared_ptr<char> allocate(int64_t bytes) override;
  void advance() override;
  void flush() override;
  void pause(int64_t times) override;
  bool wakes() const override { return true; }
  std::string lost(int64_t rank) override;
  std::mutex& mutex() override { return mutex_; }

 private:
  using Context = boost::asio::io_context;
  Connection& connection(int64_t channel, int index);
  std::shared_ptr<Room> room();
  // The global ranks of the group's other members on this host.
  std::vector<int64_t> near(const toolkit::Members& members) const;
  void connect(const toolkit::Members& members, const std::vector<int64_t>& missing,
               const std::function<void()>& meanwhile);

  const Services services_;
  const std::optional<std::string> interface_;
  const double timeout_s_;
  const bool share_;
  std::mutex mutex_;
  Context context_;
  const boost::asio::executor_work_guard<Context::executor_type> work_{context_.get_executor()};
  std::shared_ptr<Room> room_;  // made for the first group with another rank of this host
  std::map<int64_t, std::unique_ptr<Connection>> connections_;  // by global rank
  std::map<int64_t, std::vector<int64_t>> channels_;            // global ranks
};

}  // namespace drivetrain::tcp
