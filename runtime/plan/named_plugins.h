// The chosen schedule and communicator as everybody calls them: what they throw names them and the call. Errors of
// `partition` and `make_group` pass as they are: their callers say whose they are. Thread: as the plugins'.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/communicator.h>
#include <drivetrain/schedule.h>

#include "flight/record.h"

namespace drivetrain {

class NamedSchedule final : public Schedule {
 public:
  NamedSchedule(std::string id, std::shared_ptr<Schedule> inner) : id_(std::move(id)), inner_(std::move(inner)) {}

  int64_t stages() const override;
  int64_t chunks() const override;
  int64_t piece(int64_t stage, int64_t chunk) const override;
  std::vector<int64_t> partition(const std::vector<double>& unit_costs) const override;
  Program program(int64_t stage, int64_t micro_batches, Pass pass) const override;
  int64_t slots(int64_t stage, int64_t micro_batches) const override;

 private:
  const std::string id_;
  const std::shared_ptr<Schedule> inner_;
};

// Its groups write their calls into the rank's flight record, if there is one.
class NamedCommunicator final : public Communicator {
 public:
  NamedCommunicator(std::string id, std::shared_ptr<Communicator> inner, std::shared_ptr<FlightRecord> flight)
      : id_(std::move(id)), inner_(std::move(inner)), flight_(std::move(flight)) {}

  GroupPtr make_group(const std::vector<int64_t>& ranks, const std::string& label) override;
  void abort(const std::string& reason) noexcept override;
  bool has_one_memory() const override;

 private:
  const std::string id_;
  const std::shared_ptr<Communicator> inner_;
  const std::shared_ptr<FlightRecord> flight_;
};

}  // namespace drivetrain
