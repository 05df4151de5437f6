// `drivetrain flight DIR`: what the ranks of a run did last, from the records in its folder.
#include <algorithm>
#include <iostream>
#include <map>
#include <optional>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "flight_tools/left_records.h"
#include "shared/commands.h"
#include "watch/culprit.h"
#include "watch/straggler.h"

namespace drivetrain {
namespace {

std::string entry_text(const LeftRecord& record, const FlightEntry& e) {
  std::string text = concat(call_text(e.group, e.call), ": ", name_of(e.state));
  const double since = e.state == FlightState::waiting ? e.waited_s : e.called_s;
  if (e.state == FlightState::done) return text + formatted(", took %.3f s", e.done_s - e.called_s);
  return text + formatted(", %.3f s before its last change", record.last_s - since);
}

// What the rank itself did in a step: the rest of a step is waiting for others.
std::string work_text(const LeftRecord& r) {
  std::string text = formatted("%.3f s a step over its last ", total(r.work)) +
                     (r.work_steps == 1 ? "step" : concat(r.work_steps, " steps"));
  const char* separator = ": ";
  for (size_t part = 0; part < kWorkParts; ++part) {
    if (r.work[part] < 0.0005) continue;
    text += concat(separator, name_of(static_cast<WorkPart>(part)), formatted(" %.3f", r.work[part]));
    separator = ", ";
  }
  return text;
}

std::string record_text(const LeftRecord& r, size_t last) {
  const FlightPlace& at = r.place;
  std::string text = concat("rank ", r.rank, " of ", r.world_size, ", host ", r.host, ", process ", r.pid,
                            "\n  last change   ", r.written, "\n  place         step ", at.step, ", ",
                            name_of(at.doing), at.micro >= 0 ? concat(", micro-batch ", at.micro) : "");
  if (!r.call.empty()) text += concat("\n  plugin call   ", r.call);
  if (r.work_steps > 0) text += concat("\n  own work      ", work_text(r));
  const size_t count = std::min(last, r.entries.size());
  for (size_t i = r.entries.size() - count; i < r.entries.size(); ++i)
    text += concat("\n  ", formatted("%8llu", static_cast<unsigned long long>(r.entries[i].serial)), "      ",
                   entry_text(r, r.entries[i]));
  return text + "\n";
}

Value work_of(const LeftRecord& record) {
  Value work = Value::object();
  work.set("steps", record.work_steps), work.set("s", total(record.work));
  for (size_t part = 0; part < kWorkParts; ++part) work.set(name_of(static_cast<WorkPart>(part)), record.work[part]);
  return work;
}

Value json_of(const LeftRecords& left, const FlightVerdict* verdict) {
  Value v = Value::object(), ranks = Value::array(), missing = Value::array();
  for (const LeftRecord& record : left.records) {
    Value one = picture_of(record).to_value();
    one.set("last_change", record.written), one.set("doing", name_of(record.place.doing));
    one.set("own_work", work_of(record));
    ranks.items().push_back(std::move(one));
  }
  for (const auto& [rank, why] : left.missing) {
    Value one = Value::object();
    one.set("rank", rank), one.set("why", why);
    missing.items().push_back(std::move(one));
  }
  v.set("ranks", std::move(ranks)), v.set("missing", std::move(missing));
  v.set("verdict", verdict ? Value(verdict->text) : Value());
  if (verdict) v.set("culprits", Value(Value::Array(verdict->culprits.begin(), verdict->culprits.end())));
  return v;
}

// Ranks that are missing for the same reason stand in one line.
std::string missing_text(const LeftRecords& left) {
  std::map<std::string, std::vector<int64_t>> ranks;
  for (const auto& [rank, why] : left.missing) ranks[why].push_back(rank);
  std::string text;
  for (const auto& [why, of] : ranks)
    text += concat("There is no record of ", ranks_text(of), " of ", left.world_size(), ": ", why, "\n");
  return text + "Without them nobody can be named.\n";
}

}  // namespace

int flight_command(const cli::Arguments& arguments) {
  const LeftRecords left = read_left_records(arguments.plain().at(0));
  std::optional<FlightVerdict> verdict;
  if (left.missing.empty()) verdict = find_culprit(left.records);
  if (arguments.has("--json")) {
    std::cout << json_of(left, verdict ? &*verdict : nullptr).to_json(2) << "\n";
    return 0;
  }
  for (const LeftRecord& record : left.records)
    std::cout << printable(record_text(record, static_cast<size_t>(arguments.whole("--last"))));
  std::cout << printable(verdict ? "At the end: " + verdict->text + "\n" : missing_text(left));
  return 0;
}

}  // namespace drivetrain
