#include "step/capture.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "plugin_calls/plugin_call.h"
#include "plugin_calls/situations.h"

namespace drivetrain {
namespace {

// Ids of the plugins that are in none of the lists and have not said why.
std::string unable(const CaptureFacts& facts, const std::vector<const std::vector<std::string>*>& lists) {
  std::vector<std::string> ids = facts.acting;
  std::erase_if(ids, [&](const std::string& id) { return facts.in_the_way.count(id) > 0; });
  for (const auto* list : lists)
    std::erase_if(ids, [&](const std::string& id) { return std::find(list->begin(), list->end(), id) != list->end(); });
  return join(ids, ", ");
}

// Everything that keeps this run's step from being recorded; empty if nothing does.
std::vector<std::string> reasons_against(const CaptureFacts& facts) {
  std::vector<std::string> list;
  if (facts.device == "cpu") list.push_back("device \"cpu\" records nothing; it needs \"device\": \"cuda\"");
  // A key for each step's random numbers is a value of the host, which a replay would repeat.
  for (const auto& [key, p] :
       {std::pair{"hidden_dropout", facts.hidden_dropout}, {"attention_dropout", facts.attention_dropout}})
    if (p > 0) list.push_back(concat(key, " ", p, ", whose numbers the host chooses in every step"));
  if (facts.documents) list.push_back("rows of several documents, whose boundaries change from step to step");
  for (const auto& [id, why] : facts.in_the_way) list.push_back(concat(id, ": ", why));
  if (const std::string ids = unable(facts, {&facts.capturables, &facts.when_asked}); !ids.empty())
    list.push_back(ids + " (not declared fit to be recorded)");
  return list;
}

// While it lives, calls of the communicator are kept in `calls` instead of being noted as made.
struct NotedCalls {
  FlightRecord* const flight;
  std::vector<RecordedCall>& calls;
  ~NotedCalls() {
    if (flight) calls = flight->recording_ends();
  }
};

// The device would say of a graph with such a call that it is not joined, and of no plugin.
void refuse_open(const std::vector<RecordedCall>& calls) {
  for (const RecordedCall& call : calls)
    if (!call.wait->waited_for)
      throw fail(ErrorCode::plugin, "in ", call.by, ": nobody has waited for its ", name_of(call.call.op),
                 " where this part of the step ends. ", kRecordedWhole);
}

// A graph holds every kernel of every micro-batch: some 500 of each GPT-2 one. Beyond this many it takes seconds to
// record and hundreds of megabytes, for steps so long that launches no longer show.
constexpr int64_t kMostMicroBatches = 32;

}  // namespace

CaptureChoice choose_capture(const CaptureFacts& facts, const Position& where, Problems& problems) {
  if (facts.wanted == Capture::off || !facts.training) return {};
  const std::vector<std::string> reasons = reasons_against(facts);
  if (reasons.empty() && facts.wanted == Capture::automatic && facts.micro_batches > kMostMicroBatches)
    return {false, concat(facts.micro_batches, " micro-batches in a step; up to ", kMostMicroBatches,
                          " are recorded by themselves, more with \"capture\": true")};
  if (const std::string ids = unable(facts, {&facts.capturables});
      reasons.empty() && facts.wanted == Capture::automatic && !ids.empty())
    return {false, ids + ": recorded only where \"capture\": true asks for it, until that has run on several GPUs"};
  if (reasons.empty()) return {true, ""};
  if (facts.wanted == Capture::on)
    problems.add(where, concat("\"capture\": true, but steps of this run cannot be recorded: ", join(reasons, "; "),
                               "\n   use \"capture\": \"auto\", or change what is named"));
  return {false, facts.device == "cpu" ? "" : join(reasons, "; ")};
}

RecordedPart::RecordedPart(DeviceRuntime& runtime, const at::Device& device, int64_t pool, int64_t warm_up,
                           FlightRecord* flight)
    : runtime_(runtime), device_(device), pool_(pool), warm_up_(warm_up), flight_(flight) {}

std::unique_ptr<DeviceGraph> RecordedPart::record(const std::function<void()>& work) {
  std::unique_ptr<DeviceGraph> graph = runtime_.new_graph(device_, pool_);
  if (flight_) flight_->recording_begins();
  const NotedCalls noted{flight_, calls_};
  std::string broken_by;  // the first call after which the recording was none any more
  const auto name_it = [&](std::string said) {
    if (said.starts_with("in " + broken_by + ": ")) said.erase(0, broken_by.size() + 5);
    throw fail(ErrorCode::plugin, "in ", broken_by,
               ": broke the recording of the step, of which it said that it may be recorded: ", said,
               "\n   set \"capture\": false, leave out the plugin, or mend it: no waiting for the device and no copies "
               "to the host while a step is recorded");
  };
  const BehindCalls looked([&](const CurrentCall& call) {
    if (broken_by.empty() && !graph->is_whole()) broken_by = call.text();
  });
  try {
    graph->begin();
    work();
    if (flight_) refuse_open(flight_->recording());
    graph->end();
  } catch (const c10::OutOfMemoryError& e) {  // a graph's memory is its own: what fits without it may not fit with it
    throw fail(ErrorCode::out_of_memory, "while the step was recorded: ", e.what_without_backtrace(),
               "\n   a recording has memory of its own: set \"capture\": false, PYTORCH_CUDA_ALLOC_CONF="
               "expandable_segments:True in the environment, or a smaller micro-batch");
  } catch (const Error& e) {  // also of another plugin's next launch, where the one that broke it has said nothing
    if (situation_of(e) || (e.code() != ErrorCode::plugin && e.code() != ErrorCode::internal)) throw;
    if (!broken_by.empty()) name_it(e.what());
    if (e.code() != ErrorCode::plugin) throw;
    throw fail(e.code(), e.what(),
               "\n   this was while the step was recorded; if it is what a graph cannot hold, set \"capture\": false");
  } catch (const std::exception& e) {  // the driver's word for work that cannot be recorded
    const auto situation = situation_of(e);
    if (!broken_by.empty() && (!situation || situation->code == ErrorCode::plugin))
      name_it(situation ? situation->text() : first_line(e.what()));
    if (situation) throw fail(situation->code, "while the step was recorded: ", situation->text());
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
