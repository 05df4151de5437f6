#include "store/wire.h"

namespace drivetrain {
namespace {

template <class Number>
void put(std::string& out, Number value) {
  for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff);
}

// Takes a number from the front; false: too short.
template <class Number>
bool cut(std::string_view& in, Number& value) {
  if (in.size() < sizeof value) return false;
  uint64_t bits = 0;
  for (size_t i = 0; i < sizeof value; ++i) bits |= uint64_t{static_cast<unsigned char>(in[i])} << (8 * i);
  value = static_cast<Number>(bits);
  in.remove_prefix(sizeof value);
  return true;
}

std::string framed(const std::string& body) {
  std::string frame;
  put(frame, static_cast<uint32_t>(body.size()));
  return frame + body;
}

}  // namespace

std::string frame_of(const StoreRequest& request) {
  std::string body;
  put(body, request.id);
  put(body, static_cast<uint8_t>(request.asks));
  put(body, request.number);
  put(body, static_cast<uint32_t>(request.key.size()));
  return framed(body + request.key + request.value);
}

std::string frame_of(const StoreAnswer& answer) {
  std::string body;
  put(body, answer.id);
  put(body, static_cast<uint8_t>(answer.says));
  return framed(body + answer.text);
}

std::optional<StoreRequest> request_of(std::string_view body) {
  StoreRequest request;
  uint8_t asks = 0;
  uint32_t key = 0;
  if (!cut(body, request.id) || !cut(body, asks) || !cut(body, request.number) || !cut(body, key)) return std::nullopt;
  if (asks < static_cast<uint8_t>(StoreRequestKind::set) || asks > static_cast<uint8_t>(StoreRequestKind::leave))
    return std::nullopt;
  if (key > body.size()) return std::nullopt;
  request.asks = static_cast<StoreRequestKind>(asks);
  request.key = body.substr(0, key);
  request.value = body.substr(key);
  return request;
}

std::optional<StoreAnswer> answer_of(std::string_view body) {
  StoreAnswer answer;
  uint8_t says = 0;
  if (!cut(body, answer.id) || !cut(body, says)) return std::nullopt;
  if (says < static_cast<uint8_t>(StoreAnswerKind::value) || says > static_cast<uint8_t>(StoreAnswerKind::stopped))
    return std::nullopt;
  answer.says = static_cast<StoreAnswerKind>(says);
  answer.text = body;
  return answer;
}

std::optional<std::string> FrameCutter::next() {
  std::string_view rest = std::string_view(bytes_).substr(at_);
  uint32_t length = 0;
  if (broken_ || !cut(rest, length)) return std::nullopt;
  broken_ = length > most_;
  if (broken_ || rest.size() < length) return std::nullopt;
  std::string body(rest.substr(0, length));
  at_ += sizeof length + length;
  if (at_ == bytes_.size() || at_ > (size_t{1} << 16)) bytes_.erase(0, at_), at_ = 0;
  return body;
}

}  // namespace drivetrain
