// `drivetrain flight DIR`: what the ranks of a run did last, from the records in its folder.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "app/commands.h"
#include "app/run_flight.h"
#include "config/printable.h"
#include "flight/culprit.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

std::vector<LeftRecord> records_in(const std::string& given) {
  std::error_code failed;
  const fs::path inner = fs::path(given) / kFlightFolder;
  const fs::path folder = fs::is_directory(inner, failed) ? inner : fs::path(given);
  std::vector<LeftRecord> list;
  for (auto at = fs::directory_iterator(folder, failed); !failed && at != fs::directory_iterator();
       at.increment(failed)) {
    const std::string name = at->path().filename();
    if (name.starts_with("rank_") && !name.ends_with(".new")) list.push_back(read_record(at->path()));
  }
  if (failed) throw fail(ErrorCode::io, folder.string(), " cannot be read: ", failed.message());
  if (list.empty())
    throw fail(ErrorCode::io, given,
               " holds no flight records\n   a run keeps them in its output_dir, in flight/, and "
               "removes them at a good end; flight_record: false keeps none");
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return list;
}

std::string entry_text(const LeftRecord& record, const FlightEntry& e) {
  std::string text = concat(call_text(e.group, e.call), ": ", name_of(e.state));
  const double since = e.state == FlightState::waiting ? e.waited_s : e.called_s;
  if (e.state == FlightState::done) return text + formatted(", took %.3f s", e.done_s - e.called_s);
  return text + formatted(", %.3f s before its last change", record.last_s - since);
}

std::string record_text(const LeftRecord& r, size_t last) {
  const FlightPlace& at = r.place;
  std::string text = concat("rank ", r.rank, " of ", r.world_size, ", host ", r.host, ", process ", r.pid,
                            "\n  last change   ", r.written, "\n  place         step ", at.step, ", ",
                            name_of(at.doing), at.micro >= 0 ? concat(", micro-batch ", at.micro) : "");
  if (!r.call.empty()) text += concat("\n  plugin call   ", r.call);
  const size_t count = std::min(last, r.entries.size());
  for (size_t i = r.entries.size() - count; i < r.entries.size(); ++i)
    text += concat("\n  ", formatted("%8llu", static_cast<unsigned long long>(r.entries[i].serial)), "      ",
                   entry_text(r, r.entries[i]));
  return text + "\n";
}

FlightVerdict verdict_of(const std::vector<LeftRecord>& records) {
  std::vector<std::optional<RankPicture>> pictures(records.size());
  std::vector<std::string> hosts(records.size());
  for (const LeftRecord& record : records) {
    if (record.rank < 0 || record.rank >= static_cast<int64_t>(records.size())) continue;
    pictures[static_cast<size_t>(record.rank)] = picture_of(record);
    hosts[static_cast<size_t>(record.rank)] = record.host;
  }
  return find_culprit(pictures, hosts);
}

Value json_of(const std::vector<LeftRecord>& records, const std::string& missing, const FlightVerdict* verdict) {
  Value v = Value::object(), ranks = Value::array();
  for (const LeftRecord& record : records) {
    Value one = picture_of(record).to_value();
    one.set("last_change", record.written), one.set("doing", name_of(record.place.doing));
    ranks.items().push_back(std::move(one));
  }
  v.set("ranks", std::move(ranks));
  v.set("missing", missing.empty() ? Value() : Value(missing));
  v.set("verdict", verdict ? Value(verdict->text) : Value());
  if (verdict) v.set("culprits", Value(Value::Array(verdict->culprits.begin(), verdict->culprits.end())));
  return v;
}

// "1, 3 of 4", or empty.
std::string missing_ranks(const std::vector<LeftRecord>& records) {
  std::vector<int64_t> missing;
  for (int64_t r = 0; r < records.front().world_size; ++r)
    if (std::none_of(records.begin(), records.end(), [&](const auto& record) { return record.rank == r; }))
      missing.push_back(r);
  return missing.empty() ? "" : concat(join(missing), " of ", records.front().world_size);
}

}  // namespace

int flight_command(const cli::Arguments& arguments) {
  const std::vector<LeftRecord> records = records_in(arguments.plain().at(0));
  const std::string missing = missing_ranks(records);
  std::optional<FlightVerdict> verdict;
  if (missing.empty()) verdict = verdict_of(records);
  if (arguments.has("--json")) {
    std::cout << json_of(records, missing, verdict ? &*verdict : nullptr).to_json(2) << "\n";
    return 0;
  }
  for (const LeftRecord& record : records)
    std::cout << printable(record_text(record, static_cast<size_t>(arguments.whole("--last"))));
  if (!missing.empty())
    std::cout << "There are no records of ranks " << missing
              << ": their hosts have a folder of their own, or they never began. Without them nobody can be named.\n";
  else
    std::cout << printable("At the end: " + verdict->text + "\n");
  return 0;
}

}  // namespace drivetrain
