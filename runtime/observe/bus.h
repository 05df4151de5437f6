// Hands events to the monitors on one thread of their own, in order, through a bounded queue: a slow monitor delays
// other monitors, and the step only once 1024 events wait. Owned by rank 0's run; monitors and log must outlive it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <drivetrain/log.h>
#include <drivetrain/monitor.h>

#include "internal.h"

namespace drivetrain {

struct NamedMonitor {
  std::string id;  // "monitor/console"
  std::shared_ptr<Monitor> monitor;
};

class DRIVETRAIN_INTERNAL EventBus {
 public:
  EventBus(std::vector<NamedMonitor> monitors, Log& log);
  ~EventBus();  // every event published so far reaches its monitors first

  // Thread: any. Waits only while the queue is full.
  void publish(Event event);
  // Returns when every event published before has been handled.
  void flush();
  // Throws what a monitor threw first, its name in front, so that a full disk ends the run instead of leaving gaps in
  // its record. A monitor that threw gets no more events; the others do. Thread: any.
  void rethrow_if_failed();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace drivetrain
