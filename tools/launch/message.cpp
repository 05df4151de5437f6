#include "launch/message.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace drivetrain::program {
namespace {

constexpr size_t kLongestMessage = 256U << 20;
constexpr size_t kMostBeforeMark = 1U << 20;  // of a shell's start files

}  // namespace

std::string encoded(const Message& message) {
  return std::string(1, message.type) + " " + std::to_string(message.rank) + " " + std::to_string(message.text.size()) +
         "\n" + message.text;
}

std::optional<Message> MessageReader::next() {
  if (!begun_) {
    const size_t mark = unread_.find(kAgentBegins);
    if (mark == std::string::npos && unread_.size() > kMostBeforeMark)
      throw std::runtime_error("it printed more than 1 MB and no answer");
    before_ = unread_.substr(0, mark);
    if (mark == std::string::npos) return std::nullopt;
    unread_.erase(0, mark + std::strlen(kAgentBegins));
    begun_ = true;
  }
  const size_t line_end = unread_.find('\n', done_);
  if (line_end == std::string::npos && unread_.size() - done_ > 64) throw std::runtime_error("it sent no message");
  if (line_end == std::string::npos) return std::nullopt;
  Message message;
  size_t size = 0;
  if (std::sscanf(unread_.c_str() + done_, "%c %d %zu\n", &message.type, &message.rank, &size) != 3 ||
      size > kLongestMessage)
    throw std::runtime_error("it sent no message");
  if (unread_.size() - line_end - 1 < size) return std::nullopt;
  message.text = unread_.substr(line_end + 1, size);
  done_ = line_end + 1 + size;
  if (done_ == unread_.size() || done_ > (1U << 20)) unread_.erase(0, done_), done_ = 0;
  return message;
}

std::string packed(const std::vector<std::string>& fields) {
  std::string text;
  for (const std::string& field : fields) text += field + '\0';
  return text;
}

std::vector<std::string> unpacked(const std::string& text) {
  std::vector<std::string> fields;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    fields.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return fields;
}

Message message_of(const RankEnd& end) {
  return {Message::end, end.rank,
          packed({std::to_string(end.code), end.killed ? "1" : "0", end.by_launcher ? "1" : "0", end.fault})};
}

RankEnd rank_end_of(const Message& message) {
  const std::vector<std::string> fields = unpacked(message.text);
  if (fields.size() != 4) throw std::runtime_error("it sent no end of a rank");
  return {message.rank, std::stoi(fields[0]), fields[1] == "1", fields[2] == "1", 0, fields[3]};
}

Outbox::Outbox(Descriptor to) : to_(std::move(to)) { fcntl(fd(), F_SETFL, O_NONBLOCK); }

void Outbox::put(const Message& message) { put_bytes(encoded(message)); }

void Outbox::put_bytes(const std::string& bytes) {
  if (fd() < 0) return;
  waiting_ += bytes;
  flush();
}

void Outbox::flush() {
  while (fd() >= 0 && !is_empty()) {
    const ssize_t n = write(fd(), waiting_.data() + done_, size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return close();  // nobody reads it any more; who waits for an answer sees the other channel end
    done_ += static_cast<size_t>(n);
  }
  if (is_empty()) waiting_.clear(), done_ = 0;
  if (done_ > (1U << 20)) waiting_.erase(0, done_), done_ = 0;
}

bool read_available(int fd, std::string& bytes) {
  char buffer[1 << 16];
  ssize_t n = 0;
  do n = read(fd, buffer, sizeof buffer);
  while (n < 0 && errno == EINTR);
  if (n > 0) bytes.append(buffer, static_cast<size_t>(n));
  return n > 0 || (n < 0 && errno == EAGAIN);
}

}  // namespace drivetrain::program
