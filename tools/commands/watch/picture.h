// What one rank tells of itself when a run does not go on: where it is, what it waits for, how far it is in every
// group. Pictures travel over the store as JSON. Thread: any; no state.
#pragma once

#include <drivetrain/value.h>

#include <map>
#include <string>
#include <vector>

#include "flight/record.h"
#include "internal.h"
#include "watch/left_record.h"

namespace drivetrain {

// A plugin call that a thread of the rank is in.
struct PluginStay {
  std::string call;  // "dataset/text, hook read"
  double seconds = 0;
  bool main_thread = false;
};

struct DRIVETRAIN_INTERNAL RankPicture {
  int64_t rank = 0, pid = 0;
  std::string host;
  FlightPlace place;
  double quiet_s = 0;  // since anything was written into its record
  std::vector<PluginStay> stays;
  // Calls that are begun and not done, with the seconds since, oldest first; and those that ended last.
  struct Call {
    std::string group;
    FlightCall call;
    FlightState state = FlightState::done;
    double seconds = 0;
  };
  std::vector<Call> open, ended;
  std::map<std::string, int64_t> reached;  // of every group that it is in, the last collective begun; 0: none yet

  Value to_value() const;
  static RankPicture from_value(const Value& value);
};

// Of a record at this moment, without host and stays; of one that was left behind, at its last change.
DRIVETRAIN_INTERNAL RankPicture picture_of(const FlightRecord& record);
DRIVETRAIN_INTERNAL RankPicture picture_of(const LeftRecord& record);

// "rank 1", "ranks 0-2 and 5"
DRIVETRAIN_INTERNAL std::string ranks_text(const std::vector<int64_t>& ranks);

// "reduce_scatter #1234 of group dp (1024 elements of Float)", "recv #3 from rank 2, group pp (64 elements of Half)"
DRIVETRAIN_INTERNAL std::string call_text(const std::string& group, const FlightCall& call);

}  // namespace drivetrain
