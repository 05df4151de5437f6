#include "flight_tools/left_records.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "train/run_flight.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRank = "rank_", kMissing = ".missing";

// Of "rank_0003" and, with `ending`, of "rank_0003.missing".
std::optional<int64_t> rank_of(const std::string& name, std::string_view ending) {
  std::string_view digits = name;
  if (!digits.starts_with(kRank) || !digits.ends_with(ending)) return std::nullopt;
  digits.remove_prefix(kRank.size()), digits.remove_suffix(std::min(ending.size(), digits.size()));
  int64_t rank = 0;
  const auto [stop, failed] = std::from_chars(digits.begin(), digits.end(), rank);
  if (digits.empty() || failed != std::errc() || stop != digits.end()) return std::nullopt;
  return rank;
}

std::string first_line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

class Folder {
 public:
  explicit Folder(const std::string& given) : given_(given) {
    std::error_code failed;
    const fs::path inner = fs::path(given) / kFlightFolder;
    const fs::path folder = fs::is_directory(inner, failed) ? inner : fs::path(given);
    for (auto at = fs::directory_iterator(folder, failed); !failed && at != fs::directory_iterator();
         at.increment(failed))
      take(at->path());
    if (failed) throw fail(ErrorCode::io, folder.string(), " cannot be read: ", failed.message());
  }

  LeftRecords records() {
    if (found_.empty() && !unreadable_.empty()) throw fail(ErrorCode::io, unreadable_.begin()->second);
    if (found_.empty())
      throw fail(ErrorCode::io, given_,
                 " holds no flight records\n   a run keeps them in its output_dir, in flight/, and "
                 "removes them at a good end; flight_record: false keeps none");
    const uint64_t run = newest_run();
    LeftRecords left;
    for (LeftRecord& record : found_)
      if (record.run == run || record.run == 0) left.records.push_back(std::move(record));
    std::sort(left.records.begin(), left.records.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    for (int64_t rank = 0; rank < left.world_size(); ++rank)
      if (std::none_of(left.records.begin(), left.records.end(), [&](const auto& r) { return r.rank == rank; }))
        left.missing[rank] = why_missing(rank);
    return left;
  }

 private:
  void take(const fs::path& file) {
    const std::string name = file.filename();
    if (const auto rank = rank_of(name, kMissing); rank && name.ends_with(kMissing)) told_[*rank] = first_line_of(file);
    const auto rank = rank_of(name, "");
    if (!rank) return;
    try {
      LeftRecord record = read_record(file);
      if (record.rank != *rank) throw fail(ErrorCode::io, file.string(), " is the flight record of rank ", record.rank);
      runs_[*rank] = record.run;
      found_.push_back(std::move(record));
    } catch (const Error& e) {
      unreadable_[*rank] = first_line(e.what());
    }
  }

  uint64_t newest_run() const {
    const LeftRecord* newest = nullptr;
    for (const LeftRecord& record : found_)
      if (record.run != 0 && (!newest || record.written_ns > newest->written_ns)) newest = &record;
    return newest ? newest->run : 0;
  }

  std::string why_missing(int64_t rank) const {
    if (const auto text = unreadable_.find(rank); text != unreadable_.end()) return text->second;
    if (const auto text = told_.find(rank); text != told_.end()) return text->second;
    if (runs_.count(rank)) return "the record that is here is of another run";
    return "it never began, or its host has a folder of its own and no launcher brought its record";
  }

  const std::string given_;
  std::vector<LeftRecord> found_;
  std::map<int64_t, std::string> unreadable_, told_;
  std::map<int64_t, uint64_t> runs_;
};

}  // namespace

LeftRecords read_left_records(const std::string& given) { return Folder(given).records(); }

}  // namespace drivetrain
