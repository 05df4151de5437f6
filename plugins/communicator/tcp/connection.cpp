#include "connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>

#include <algorithm>
#include <array>
#include <cstring>

#include <drivetrain/error.h>

namespace drivetrain::tcp {
namespace {

namespace asio = boost::asio;
using Failure = boost::system::error_code;

// Small, so that little of a long message comes here instead of where it belongs.
constexpr size_t kBuffer = 16 << 10;
constexpr size_t kBuffersAtOnce = 32;

}  // namespace

Connection::Connection(Socket socket, std::string peer, Near near)
    : socket_(std::move(socket)), peer_(std::move(peer)), near_(std::move(near)), buffer_(kBuffer) {}

// Bytes of the other side that nobody reads make the kernel reset the connection, which may overtake what this side
// sent last; so they are read as far as they are there.
Connection::~Connection() {
  Failure ignored;
  if (!lost_.empty()) return;
  socket_.shutdown(Socket::shutdown_send, ignored);
  for (size_t i = 0; i < 64 && !ignored; ++i) socket_.read_some(asio::buffer(buffer_), ignored);
}

void Connection::lose(const std::string& reason) {
  if (lost_.empty()) lost_ = concat("the connection to ", peer_, " was lost: ", reason);
}

void Connection::await(Socket::wait_type what, std::atomic<bool> Signals::*flag) {
  socket_.async_wait(what, [signals = signals_, flag](const Failure&) { (signals.get()->*flag) = true; });
}

// ---- sending ----

void Connection::send(int64_t channel, int tag, TcpTransferPtr transfer) {
  Stream& s = stream(channel, tag);
  s.held.push_back(std::move(transfer));
  release(s, channel, tag);
  write();
}

void Connection::release(Stream& s, int64_t channel, int tag) {
  while (!s.held.empty()) {
    const TcpTransferPtr& next = s.held.front();
    const bool is_long = next->bytes > kShortBytes;
    if (is_long && s.clears == 0) return;
    s.clears -= is_long ? 1 : 0;
    if (!is_long || !near_.room || !lend(next, channel, tag))
      outgoing_.push_back({{kData, static_cast<uint32_t>(tag), channel, next->bytes}, next});
    s.held.pop_front();
  }
}

void Connection::flush() {
  for (const int64_t number : seen_->take()) outgoing_.push_back({{kSeen, 0, 0, 0, number}, nullptr});
  write();
}

void Connection::write() {
  while (!outgoing_.empty() && lost_.empty() && signals_->writable) {
    std::array<asio::const_buffer, kBuffersAtOnce> buffers;
    size_t used = 0;
    for (const Outgoing& out : outgoing_) {
      if (used + 2 > buffers.size()) break;
      constexpr auto head = static_cast<int64_t>(sizeof(Head));
      if (out.written < head)
        buffers[used++] = {reinterpret_cast<const char*>(&out.head) + out.written,
                           static_cast<size_t>(head - out.written)};
      const int64_t of_data = std::max<int64_t>(0, out.written - head);
      if (out.transfer && out.head.bytes > of_data)
        buffers[used++] = {out.transfer->data + of_data, static_cast<size_t>(out.head.bytes - of_data)};
    }
    Failure failure;
    auto wrote = static_cast<int64_t>(socket_.write_some(buffers, failure));
    if (failure == asio::error::would_block || failure == asio::error::try_again) {
      signals_->writable = false;
      await(Socket::wait_write, &Signals::writable);
      return;
    }
    // What the other side sent before it left may still be read: the reading side tells the loss.
    if (failure) {
      signals_->readable = true;
      read();
      if (failure != asio::error::broken_pipe && failure != asio::error::connection_reset) lose(failure.message());
      return;
    }
    while (wrote > 0) {
      Outgoing& out = outgoing_.front();
      const int64_t part = std::min(wrote, out.total() - out.written);
      out.written += part, wrote -= part;
      if (out.written < out.total()) break;
      if (out.transfer) out.transfer->finished = true;
      outgoing_.pop_front();
    }
  }
}

// ---- receiving ----

void Connection::recv(int64_t channel, int tag, TcpTransferPtr transfer) {
  Stream& s = stream(channel, tag);
  if (!s.arrived.empty()) {
    const Arrived message = std::move(s.arrived.front());
    s.arrived.pop_front();
    if (message.bytes > transfer->bytes)
      return lose(concat("it sent ", message.bytes, " bytes where ", transfer->bytes, " were expected"));
    if (message.bytes > 0) std::memcpy(transfer->data, message.data.get(), static_cast<size_t>(message.bytes));
    transfer->finished = true;
    return;
  }
  const bool is_long = transfer->bytes > kShortBytes;
  s.asked.push_back(std::move(transfer));
  if (!is_long) return;
  outgoing_.push_back({{kClear, static_cast<uint32_t>(tag), channel, 0}, nullptr});
  write();
}

void Connection::begin_message(const Head& head) {
  if (head.kind == kClear) {
    Stream& s = stream(head.channel, static_cast<int>(head.tag));
    ++s.clears;
    release(s, head.channel, static_cast<int>(head.tag));
    return;
  }
  if (head.kind == kPlace) return take_place(head);
  if (head.kind == kSeen) return take_back(head.at);
  if (head.kind != kData || head.bytes < 0)
    return lose(concat("it sent a head of kind ", head.kind, " and ", head.bytes, " bytes, which is none of ours"));
  Stream& s = stream(head.channel, static_cast<int>(head.tag));
  incoming_ = {};
  incoming_.head = head, incoming_.left = head.bytes, incoming_.open = true;
  if (!s.asked.empty()) {
    incoming_.transfer = s.asked.front();
    s.asked.pop_front();
    if (head.bytes > incoming_.transfer->bytes)
      return lose(concat("it sent ", head.bytes, " bytes where ", incoming_.transfer->bytes, " were expected"));
    incoming_.at = incoming_.transfer->data;
  } else {
    if (head.bytes > kShortBytes) return lose(concat("it sent ", head.bytes, " bytes that nobody asked for"));
    incoming_.arrived = {std::make_unique_for_overwrite<char[]>(static_cast<size_t>(head.bytes)), head.bytes};
    incoming_.at = incoming_.arrived.data.get();
  }
  if (incoming_.left == 0) end_message();
}

void Connection::end_message() {
  incoming_.open = false;
  if (incoming_.transfer) {
    incoming_.transfer->finished = true;
    incoming_.transfer = nullptr;
    return;
  }
  // A receive may have been asked for while the message came.
  Stream& s = stream(incoming_.head.channel, static_cast<int>(incoming_.head.tag));
  s.arrived.push_back(std::move(incoming_.arrived));
  if (s.asked.empty()) return;
  const TcpTransferPtr asked = s.asked.front();
  s.asked.pop_front();
  const Arrived message = std::move(s.arrived.front());
  s.arrived.pop_front();
  if (message.bytes > asked->bytes)
    return lose(concat("it sent ", message.bytes, " bytes where ", asked->bytes, " were expected"));
  if (message.bytes > 0) std::memcpy(asked->data, message.data.get(), static_cast<size_t>(message.bytes));
  asked->finished = true;
}

void Connection::take_bytes() {
  while (lost_.empty()) {
    if (incoming_.open) {
      const auto part = std::min<int64_t>(incoming_.left, static_cast<int64_t>(end_ - begin_));
      if (part == 0) return;
      std::memcpy(incoming_.at, &buffer_[begin_], static_cast<size_t>(part));
      begin_ += static_cast<size_t>(part);
      incoming_.at += part, incoming_.left -= part;
      if (incoming_.left == 0) end_message();
      continue;
    }
    if (end_ - begin_ < sizeof(Head)) return;
    Head head;
    std::memcpy(&head, &buffer_[begin_], sizeof head);
    begin_ += sizeof head;
    begin_message(head);
  }
}

bool Connection::read_some() {
  Failure failure;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), &buffer_[begin_], end_ - begin_);
    end_ -= begin_, begin_ = 0;
  }
  // A message is read where it belongs, and what follows it into the buffer.
  const size_t direct = incoming_.open && end_ == 0 ? static_cast<size_t>(incoming_.left) : 0;
  const std::array<asio::mutable_buffer, 2> places{asio::buffer(incoming_.at, direct),
                                                   asio::buffer(buffer_.data() + end_, buffer_.size() - end_)};
  const size_t got = socket_.read_some(places, failure);
  if (failure == asio::error::would_block || failure == asio::error::try_again) {
    signals_->readable = false;
    await(Socket::wait_read, &Signals::readable);
    return false;
  }
  if (failure) {
    lose(failure == asio::error::eof ? "it closed the connection" : failure.message());
    return false;
  }
  const size_t placed = std::min(got, direct);
  if (placed > 0) {
    incoming_.at += placed, incoming_.left -= static_cast<int64_t>(placed);
    if (incoming_.left == 0) end_message();
  }
  end_ += got - placed;
  take_bytes();
  return true;
}

void Connection::read() {
  constexpr int kReadsAtOnce = 16;  // other connections have their turn
  for (int i = 0; i < kReadsAtOnce && lost_.empty() && signals_->readable; ++i)
    if (!read_some()) return;
}

void Connection::advance() {
  read();
  flush();
}

void Connection::forget(int64_t channel) noexcept {
  std::erase_if(streams_, [channel](const auto& entry) { return entry.first.first == channel; });
}

}  // namespace drivetrain::tcp
