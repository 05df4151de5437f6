#include "watch/exchange.h"

#include <chrono>
#include <thread>

#include <drivetrain/error.h>
#include <drivetrain/value.h>

#include "rendezvous/rendezvous.h"
#include "watch/in_time.h"

namespace drivetrain {
namespace {

constexpr double kAnswerS = 2, kSoonS = 0.5;  // of a store that is alive, on a busy machine; soon: it is asked again
constexpr const char* kHost = "drivetrain/flight/host/";

// One that cannot be read is as good as none, and no reason to end a run that may yet go on.
std::optional<RankPicture> picture_in(const std::string& text) {
  try {
    return RankPicture::from_value(parse_json(text, "flight record"));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::string FlightExchange::key(const char* what) const { return concat("drivetrain/flight/", round_, "/", what); }

FlightExchange::Heard FlightExchange::put(const std::string& key, const std::string& value, double seconds) {
  try {
    return set_in_time(*store_, key, value, seconds) ? Heard::yes : Heard::silent;
  } catch (const std::exception&) {
    return Heard::over;
  }
}

FlightExchange::Heard FlightExchange::look(const std::string& key, std::string* value, double seconds) {
  try {
    const InTime<std::string> found = find_in_time(*store_, key, seconds);
    if (found.value && value) *value = *found.value;
    return found.value ? Heard::yes : found.answered ? Heard::no : Heard::silent;
  } catch (const std::exception&) {
    return Heard::over;
  }
}

FlightExchange::Heard FlightExchange::asked() { return look(key("asked"), nullptr, kSoonS); }
FlightExchange::Heard FlightExchange::ask() { return put(key("asked"), "1", kSoonS); }
FlightExchange::Heard FlightExchange::give(const RankPicture& picture) {
  return put(concat(key("of/"), rank_), picture.to_value().to_json(), kAnswerS);
}

std::optional<bool> FlightExchange::first_to_compare() {
  try {
    const InTime<int64_t> number = add_in_time(*store_, key("comparing"), 1, kAnswerS);
    if (!number.answered) return std::nullopt;
    return number.value.value_or(0) == 1;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::vector<std::optional<RankPicture>> FlightExchange::pictures(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  std::vector<std::optional<RankPicture>> all(static_cast<size_t>(world_size_));
  for (;;) {
    bool missing = false;
    for (int64_t r = 0; r < world_size_; ++r) {
      std::optional<RankPicture>& one = all[static_cast<size_t>(r)];
      std::string text;
      if (!one && look(concat(key("of/"), r), &text, kAnswerS) == Heard::yes) one = picture_in(text);
      missing = missing || !one;
    }
    if (!missing || Clock::now() >= until) return all;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void FlightExchange::tell_host(const std::string& host) { put(concat(kHost, rank_), host, kAnswerS); }

std::vector<std::string> FlightExchange::hosts() {
  std::vector<std::string> all(static_cast<size_t>(world_size_));
  for (int64_t r = 0; r < world_size_; ++r) look(concat(kHost, r), &all[static_cast<size_t>(r)], kAnswerS);
  return all;
}

void FlightExchange::tell(const Verdict& verdict) {
  put(key("verdict"), concat(static_cast<int>(verdict.kind), verdict.text), kAnswerS);
}

FlightExchange::Verdict FlightExchange::verdict(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    std::string text;
    const Heard heard = look(key("verdict"), &text, kAnswerS);
    const int kind = text.empty() ? 0 : text.front() - '0';
    if (heard == Heard::yes && kind >= Verdict::none && kind <= Verdict::different_calls)
      return {static_cast<Verdict::Kind>(kind), text.substr(1)};
    if (heard != Heard::no || Clock::now() >= until) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace drivetrain
