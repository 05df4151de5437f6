#include "flight/group.h"

#include <type_traits>
#include <utility>

#include <drivetrain/error.h>

#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

// `on_device`: the host's wait is not the end of the call.
class RecordedWork final : public Work {
 public:
  RecordedWork(WorkPtr inner, std::shared_ptr<FlightRecord> record, uint64_t serial, bool on_device)
      : inner_(std::move(inner)), record_(std::move(record)), serial_(serial), on_device_(on_device) {}

  void wait() override {
    if (record_->is_recording() && made_in_ < record_->recordings()) return wait_while_recorded();
    if (waited_) return inner_->wait();
    record_->waiting(serial_);
    try {
      inner_->wait();
    } catch (...) {
      record_->failed(serial_);
      throw;
    }
    waited_ = true;
    on_device_ ? record_->enqueued(serial_) : record_->done(serial_);
  }

 private:
  // What a recording does not hold it cannot wait for, and has waited for where the host has.
  void wait_while_recorded() const {
    if (waited_) return;
    std::string call = "a call";
    for (const FlightEntry& e : record_->entries())
      if (e.serial == serial_) call = concat(name_of(e.call.op), " #", e.call.number, " of group ", e.group);
    throw fail(ErrorCode::plugin, "waits for ", call, ", which was made before this part of the step. ",
               kRecordedWhole);
  }

  const WorkPtr inner_;
  const std::shared_ptr<FlightRecord> record_;
  const uint64_t serial_;
  const bool on_device_;
  const int64_t made_in_ = record_->recordings();  // another thread may make calls while this one records
  bool waited_ = false;
};

// Of a call that is recorded: what it ends with is the recording's own.
class WorkWithinRecording final : public Work {
 public:
  WorkWithinRecording(WorkPtr inner, std::shared_ptr<RecordedCall::Wait> state)
      : inner_(std::move(inner)), state_(std::move(state)) {}

  void wait() override {
    if (state_->recording_over) return;  // has waited, or its end was named
    inner_->wait();
    state_->waited_for = true;
  }

 private:
  const WorkPtr inner_;
  const std::shared_ptr<RecordedCall::Wait> state_;
};

class RecordedGroup final : public Group {
 public:
  RecordedGroup(GroupPtr inner, std::shared_ptr<FlightRecord> record)
      : inner_(std::move(inner)), record_(std::move(record)), index_(record_->group(inner_->label())) {}

  int64_t rank() const override { return inner_->rank(); }
  const std::vector<int64_t>& ranks() const override { return inner_->ranks(); }
  const std::string& label() const override { return inner_->label(); }
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override { return inner_->allocate(numel, dtype); }

  at::Tensor allocate_once(int64_t numel, at::ScalarType dtype) override {
    FlightCall call = collective(FlightOp::share);
    call.bytes = numel * static_cast<int64_t>(c10::elementSize(dtype)), call.dtype = static_cast<int8_t>(dtype);
    return blocking(call, [&] { return inner_->allocate_once(numel, dtype); });
  }
  WorkPtr all_reduce(at::Tensor t) override {
    return begun(collective(FlightOp::all_reduce, t), t, [&] { return inner_->all_reduce(std::move(t)); });
  }
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override {
    return begun(collective(FlightOp::all_gather, in), in,
                 [&] { return inner_->all_gather(std::move(out), std::move(in)); });
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in) override {
    return begun(collective(FlightOp::reduce_scatter, out), out,
                 [&] { return inner_->reduce_scatter(std::move(out), std::move(in)); });
  }
  WorkPtr all_to_all(at::Tensor out, at::Tensor in) override {
    return begun(collective(FlightOp::all_to_all, in), in,
                 [&] { return inner_->all_to_all(std::move(out), std::move(in)); });
  }
  // Ranks have different sizes here.
  WorkPtr all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                     const std::vector<int64_t>& sent) override {
    return begun(collective(FlightOp::all_to_all), in,
                 [&] { return inner_->all_to_all(std::move(out), std::move(in), received, sent); });
  }
  WorkPtr broadcast(at::Tensor t, int64_t root) override {
    FlightCall call = collective(FlightOp::broadcast, t);
    call.peer = global(root);
    return begun(call, t, [&] { return inner_->broadcast(std::move(t), root); });
  }
  WorkPtr send(at::Tensor t, int64_t to) override {
    return begun(message(FlightOp::send, t, to), t, [&] { return inner_->send(std::move(t), to); });
  }
  WorkPtr recv(at::Tensor t, int64_t from) override {
    return begun(message(FlightOp::recv, t, from), t, [&] { return inner_->recv(std::move(t), from); });
  }
  void batch_begin() override { inner_->batch_begin(); }
  void batch_end() override { inner_->batch_end(); }
  void barrier() override {
    blocking(collective(FlightOp::barrier), [&] { inner_->barrier(); });
  }

 private:
  // An index that is none is the inner group's to refuse.
  int64_t global(int64_t index) const { return index >= 0 && index < size() ? ranks()[index] : -1; }

  // Without their numbers: a call that is recorded has none yet.
  static FlightCall collective(FlightOp op) {
    FlightCall call;
    call.op = op;
    return call;
  }
  static FlightCall collective(FlightOp op, const at::Tensor& t) { return with_tensor(collective(op), t); }
  FlightCall message(FlightOp op, const at::Tensor& t, int64_t with) const {
    FlightCall call;
    call.op = op, call.peer = global(with);
    return with_tensor(call, t);
  }
  static FlightCall with_tensor(FlightCall call, const at::Tensor& t) {
    if (!t.defined()) return call;
    call.bytes = static_cast<int64_t>(t.nbytes()), call.dtype = static_cast<int8_t>(t.scalar_type());
    return call;
  }

  uint64_t begin(FlightCall call) {
    call.number = numbers_->next(call.op, call.peer);
    return record_->begin(index_, call);
  }
  template <class Call>
  WorkPtr begun(const FlightCall& call, const at::Tensor& t, const Call& inside) {
    if (record_->is_recording()) {
      WorkPtr work = inside();
      record_->recording().push_back({numbers_, index_, call, current_call_text()});
      return std::make_shared<WorkWithinRecording>(std::move(work), record_->recording().back().wait);
    }
    const bool on_device = t.defined() && !t.is_cpu();
    const uint64_t serial = begin(call);
    try {
      WorkPtr work = inside();
      record_->pending(serial);
      return std::make_shared<RecordedWork>(std::move(work), record_, serial, on_device);
    } catch (...) {
      record_->failed(serial);
      throw;
    }
  }
  template <class Call>
  std::invoke_result_t<const Call&> blocking(const FlightCall& call, const Call& inside) {
    struct End {
      FlightRecord& record;
      uint64_t serial;
      bool failed = false;
      ~End() { failed ? record.failed(serial) : record.done(serial); }
    } end{*record_, begin(call)};
    try {
      return inside();
    } catch (...) {
      end.failed = true;
      throw;
    }
  }

  const GroupPtr inner_;
  const std::shared_ptr<FlightRecord> record_;
  const size_t index_;
  const std::shared_ptr<CallNumbers> numbers_ = std::make_shared<CallNumbers>();
};

}  // namespace

GroupPtr recorded_group(GroupPtr group, std::shared_ptr<FlightRecord> record) {
  if (!record || !group) return group;
  return std::make_shared<RecordedGroup>(std::move(group), std::move(record));
}

}  // namespace drivetrain
