#include "step/capture.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

// Everything that keeps this run's step from being recorded; empty if nothing does.
std::vector<std::string> reasons_against(const CaptureFacts& facts) {
  std::vector<std::string> list;
  if (facts.device == "cpu") list.push_back("device \"cpu\" records nothing; it needs \"device\": \"cuda\"");
  // A key for each step's random numbers is a value of the host, which a replay would repeat.
  if (facts.hidden_dropout > 0)
    list.push_back(concat("hidden_dropout ", facts.hidden_dropout, ", whose numbers the host chooses in every step"));
  if (facts.attention_dropout > 0)
    list.push_back(
        concat("attention_dropout ", facts.attention_dropout, ", whose numbers the host chooses in every step"));
  if (facts.documents) list.push_back("rows of several documents, whose boundaries change from step to step");
  std::string names;
  for (const std::string& id : facts.acting) {
    const auto& able = facts.capturables;
    if (std::find(able.begin(), able.end(), id) == able.end()) names += (names.empty() ? "" : ", ") + id;
  }
  if (!names.empty()) list.push_back(names + " (not declared fit to be recorded)");
  return list;
}

// While it lives, calls of the communicator are kept in `calls` instead of being noted as made.
class NotedCalls {
 public:
  NotedCalls(FlightRecord* flight, std::vector<RecordedCall>& calls) : flight_(flight), calls_(calls) {
    if (flight_) flight_->recording_begins();
  }
  ~NotedCalls() {
    if (flight_) calls_ = flight_->recording_ends();
  }
  NotedCalls(const NotedCalls&) = delete;
  NotedCalls& operator=(const NotedCalls&) = delete;

 private:
  FlightRecord* const flight_;
  std::vector<RecordedCall>& calls_;
};

}  // namespace

CaptureChoice choose_capture(const CaptureFacts& facts, const Position& where, Problems& problems) {
  if (facts.wanted == Capture::off || !facts.training) return {};
  const std::vector<std::string> reasons = reasons_against(facts);
  if (reasons.empty()) return {true, ""};
  if (facts.wanted == Capture::on)
    problems.add(where, concat("\"capture\": true, but steps of this run cannot be recorded: ", join(reasons, "; "),
                               "\n   use \"capture\": \"auto\", or change what is named"));
  return {false, facts.device == "cpu" ? "" : join(reasons, "; ")};
}

RecordedPart::RecordedPart(DeviceRuntime& runtime, const at::Device& device, int64_t warm_up, FlightRecord* flight)
    : runtime_(runtime), device_(device), warm_up_(warm_up), flight_(flight) {}

std::unique_ptr<DeviceGraph> RecordedPart::record(const std::function<void()>& work) {
  std::unique_ptr<DeviceGraph> graph = runtime_.new_graph(device_);
  const NotedCalls noted(flight_, calls_);
  try {
    graph->begin();
    work();
    graph->end();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::plugin) throw;
    throw fail(e.code(), e.what(),
               "\n   this was while the step was recorded; if it is what a graph cannot hold, set \"capture\": false");
  } catch (const std::exception& e) {  // the driver's word for work that cannot be recorded
    throw fail(ErrorCode::config, "while the step was recorded: ", e.what(),
               "\n   some plugin does what a graph cannot hold; set \"capture\": false, or leave out the plugin");
  }
  return graph;
}

void RecordedPart::run(const std::function<void()>& work) {
  if (!graph_) {
    if (warm_up_ > 0) {
      --warm_up_;
      return work();
    }
    graph_ = record(work);
  }
  if (flight_) flight_->at(FlightDoing::replay), flight_->replayed(calls_);
  graph_->replay();
}

}  // namespace drivetrain
