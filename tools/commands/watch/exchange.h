// How the watches of a run's ranks talk over the store: rounds, in each of which every rank gives its picture and one
// rank compares them. No call waits longer than it says, and none harms the store for others: rank 0 may be stopped.
// Thread: the watch's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/store.h>

#include "internal.h"
#include "watch/picture.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL FlightExchange {
 public:
  FlightExchange(std::shared_ptr<Store> store, int64_t rank, int64_t world_size)
      : store_(std::move(store)), rank_(rank), world_size_(world_size) {}

  enum class Heard { yes, no, silent, over };  // silent: rank 0's store does not answer; over: the run ends
  // Whether somebody asks for the pictures of the current round.
  Heard asked();
  // Asks everybody, this rank included.
  Heard ask();
  Heard give(const RankPicture& picture);
  // True on one rank only: it compares.
  std::optional<bool> first_to_compare();
  // Those that came within `seconds`.
  std::vector<std::optional<RankPicture>> pictures(double seconds);
  // Of ranks that gave none this time: the hosts that they told when they began.
  std::vector<std::string> hosts();
  void tell_host(const std::string& host);

  // What the comparison found, for all ranks; read until it is there or `seconds` are over (none).
  // withdrawn: the run went on meanwhile.
  struct Verdict {
    enum Kind { none, withdrawn, said, different_calls } kind = none;
    std::string text = {};
  };
  void tell(const Verdict& verdict);
  Verdict verdict(double seconds);
  void next_round() { ++round_; }
  int64_t round() const { return round_; }

 private:
  std::string key(const char* what) const;
  Heard put(const std::string& key, const std::string& value, double seconds);
  Heard look(const std::string& key, std::string* value, double seconds);

  const std::shared_ptr<Store> store_;
  const int64_t rank_, world_size_;
  int64_t round_ = 1;
};

}  // namespace drivetrain
