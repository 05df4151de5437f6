#include "watch/picture.h"

#include <c10/core/ScalarType.h>
#include <unistd.h>

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

constexpr size_t kEndedTold = 64;  // enough for ranks that are a step apart

Value to_value(const RankPicture::Call& c) {
  Value v = Value::array();
  for (Value item : {Value(c.group), Value(static_cast<int64_t>(c.call.op)), Value(c.call.number), Value(c.call.bytes),
                     Value(static_cast<int64_t>(c.call.dtype)), Value(c.call.peer),
                     Value(static_cast<int64_t>(c.state)), Value(c.seconds)})
    v.items().push_back(std::move(item));
  return v;
}

int64_t integer_below(const Value& v, int64_t limit) {
  const int64_t i = v.as_int();
  if (i < 0 || i >= limit) throw fail(ErrorCode::communication, "a rank's flight record holds ", i, " of ", limit);
  return i;
}

RankPicture::Call call_from(const Value& v) {
  const Value::Array& a = v.items();
  if (a.size() != 8) throw fail(ErrorCode::communication, "a rank's flight record has a call of ", a.size(), " parts");
  RankPicture::Call c;
  c.group = a[0].as_string();
  c.call.op = static_cast<FlightOp>(integer_below(a[1], kFlightOps));
  c.call.number = a[2].as_int(), c.call.bytes = a[3].as_int();
  c.call.dtype = static_cast<int8_t>(a[4].as_int()), c.call.peer = a[5].as_int();
  c.state = static_cast<FlightState>(integer_below(a[6], static_cast<int64_t>(FlightState::failed) + 1));
  c.seconds = a[7].as_double();
  return c;
}

template <class Items, class Make>
Value list_of(const Items& items, const Make& make) {
  Value list = Value::array();
  for (const auto& item : items) list.items().push_back(make(item));
  return list;
}

RankPicture of_entries(const std::vector<FlightEntry>& entries, double now) {
  RankPicture p;
  for (const FlightEntry& e : entries) {
    const bool over = e.state == FlightState::done || e.state == FlightState::failed;
    const double since = e.state == FlightState::waiting ? e.waited_s : over ? e.done_s : e.called_s;
    (over ? p.ended : p.open).push_back({e.group, e.call, e.state, std::max(0.0, now - since)});
  }
  if (p.ended.size() > kEndedTold) p.ended.erase(p.ended.begin(), p.ended.end() - kEndedTold);
  return p;
}

}  // namespace

std::string ranks_text(const std::vector<int64_t>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i > 2)
      parts.push_back(concat(ranks[i], "-", ranks[end - 1]));
    else
      for (size_t k = i; k < end; ++k) parts.push_back(concat(ranks[k]));
    i = end;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < parts.size(); ++i)
    text += concat(i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ", parts[i]);
  return text;
}

std::string call_text(const std::string& group, const FlightCall& call) {
  const bool message = !is_collective(call.op);
  std::string text = concat(name_of(call.op), " #", call.number);
  if (message) text += concat(call.op == FlightOp::send ? " to rank " : " from rank ", call.peer);
  text += concat(message ? ", group " : " of group ", group);
  if (call.bytes <= 0) return text;
  const auto dtype = static_cast<at::ScalarType>(call.dtype);
  if (call.dtype < 0 || dtype >= at::ScalarType::NumOptions) return text + concat(" (", call.bytes, " bytes)");
  return text + concat(" (", call.bytes / static_cast<int64_t>(c10::elementSize(dtype)), " elements of ",
                       c10::toString(dtype), ")");
}

Value RankPicture::to_value() const {
  Value v = Value::object();
  v.set("rank", rank), v.set("pid", pid), v.set("host", host), v.set("quiet_s", quiet_s);
  v.set("step", place.step), v.set("micro", place.micro), v.set("doing", static_cast<int64_t>(place.doing));
  v.set("stays", list_of(stays, [](const PluginStay& stay) {
          Value one = Value::object();
          one.set("call", stay.call), one.set("s", stay.seconds), one.set("main", stay.main_thread);
          return one;
        }));
  v.set("open", list_of(open, [](const Call& c) { return drivetrain::to_value(c); }));
  v.set("ended", list_of(ended, [](const Call& c) { return drivetrain::to_value(c); }));
  Value groups = Value::object();
  for (const auto& [label, number] : reached) groups.set(label, number);
  v.set("groups", std::move(groups));
  return v;
}

RankPicture RankPicture::from_value(const Value& v) {
  const auto part = [&](const char* key) -> const Value& {
    const Value* const found = v.find(key);
    if (!found) throw fail(ErrorCode::communication, "a rank's flight record lacks \"", key, "\"");
    return *found;
  };
  RankPicture p;
  p.rank = part("rank").as_int(), p.pid = part("pid").as_int(), p.host = part("host").as_string();
  p.quiet_s = part("quiet_s").as_double();
  p.place = {part("step").as_int(), part("micro").as_int(),
             static_cast<FlightDoing>(integer_below(part("doing"), kFlightDoings))};
  for (const Value& stay : part("stays").items())
    p.stays.push_back({stay.find("call") ? stay.find("call")->as_string() : "",
                       stay.find("s") ? stay.find("s")->as_double() : 0,
                       stay.find("main") && stay.find("main")->as_bool()});
  for (const Value& one : part("open").items()) p.open.push_back(call_from(one));
  for (const Value& one : part("ended").items()) p.ended.push_back(call_from(one));
  for (const Value::Member& group : part("groups").members()) p.reached[group.key] = group.value.as_int();
  return p;
}

RankPicture picture_of(const FlightRecord& record) {
  RankPicture p = of_entries(record.entries(), record.now());
  p.rank = record.rank(), p.pid = getpid(), p.place = record.place(), p.reached = record.reached();
  return p;
}

RankPicture picture_of(const LeftRecord& record) {
  RankPicture p = of_entries(record.entries, record.last_s);
  p.rank = record.rank, p.pid = record.pid, p.host = record.host, p.place = record.place;
  p.reached = record.reached;
  if (!record.call.empty()) p.stays.push_back({record.call, 0, true});
  // What failed at the end was waited for until then.
  for (auto call = p.ended.begin(); call != p.ended.end();) {
    if (call->state != FlightState::failed) {
      ++call;
      continue;
    }
    call->state = FlightState::waiting;
    p.open.push_back(*call);
    call = p.ended.erase(call);
  }
  return p;
}

}  // namespace drivetrain
