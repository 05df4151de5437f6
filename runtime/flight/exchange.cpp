#include "flight/exchange.h"

#include <charconv>
#include <chrono>
#include <thread>

#include <drivetrain/error.h>

#include <drivetrain/value.h>
#include "rendezvous/rendezvous.h"

namespace drivetrain {
namespace {

constexpr double kAnswerS = 2;  // of a store that is alive, on a busy machine
constexpr const char* kHost = "drivetrain/flight/host/";

}  // namespace

std::string FlightExchange::key(const char* what) const { return concat("drivetrain/flight/", round_, "/", what); }

FlightExchange::Heard FlightExchange::put(const std::string& key, const std::string& value) {
  try {
    return set_in_time(*store_, key, value, kAnswerS) ? Heard::yes : Heard::silent;
  } catch (const std::exception&) {
    return Heard::over;
  }
}

FlightExchange::Heard FlightExchange::look(const std::string& key, std::string* value) {
  try {
    const InTime<std::string> found = find_in_time(*store_, key, kAnswerS);
    if (found.value && value) *value = *found.value;
    return found.value ? Heard::yes : found.answered ? Heard::no : Heard::silent;
  } catch (const std::exception&) {
    return Heard::over;
  }
}

FlightExchange::Heard FlightExchange::asked() { return look(key("asked")); }
FlightExchange::Heard FlightExchange::ask() { return put(key("asked"), "1"); }
FlightExchange::Heard FlightExchange::give(const RankPicture& picture) {
  return put(concat(key("of/"), rank_), picture.to_value().to_json());
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
      if (!one && look(concat(key("of/"), r), &text) == Heard::yes)
        one = RankPicture::from_value(parse_json(text, "flight record"));
      missing = missing || !one;
    }
    if (!missing || Clock::now() >= until) return all;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void FlightExchange::tell_host(const std::string& host) { put(concat(kHost, rank_), host); }

std::vector<std::string> FlightExchange::hosts() {
  std::vector<std::string> all(static_cast<size_t>(world_size_));
  for (int64_t r = 0; r < world_size_; ++r) look(concat(kHost, r), &all[static_cast<size_t>(r)]);
  return all;
}

void FlightExchange::tell_verdict(bool different_calls, const std::string& text) {
  put(key("verdict"), concat(different_calls ? "!" : "=", text));
}

std::optional<std::string> FlightExchange::verdict_of_different_calls(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    std::string text;
    const Heard heard = look(key("verdict"), &text);
    if (heard == Heard::yes) return text.starts_with('!') ? std::optional(text.substr(1)) : std::nullopt;
    if (heard != Heard::no || Clock::now() >= until) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace drivetrain
