// Training of a few units by a sharding strategy over the stand-ins for CUDA and NCCL: what units compute runs on the
// stream, too, and parts of a step are recorded as the runtime does it.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/CPUAllocator.h>

#include <cstdlib>

#include "conformance/communicator/linked.h"
#include "fake_cuda.h"
#include "flight/group.h"
#include "step/capture.h"
#include "step/program.h"
#include "step/step_state.h"
#include "support/idle_device.h"
#include "support/sharing_strategy.h"

namespace drivetrain::test {

inline constexpr double kEndsWithinS = 30;  // far more than any run here
inline constexpr int64_t kUnits = 4, kNumel = 2 * kNormBlock, kSteps = 6;
inline const at::Device kHost(at::kCPU);

// A graph's memory is its own as long as the graph lives; here nothing is used twice.
class KeptMemory final : public c10::Allocator {
 public:
  KeptMemory() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, /*priority=*/200); }
  ~KeptMemory() override {
    c10::SetCPUAllocator(before_, /*priority=*/200);
    for (void* memory : kept_) std::free(memory);
  }
  c10::DataPtr allocate(size_t bytes) override {
    void* const memory = std::calloc(1, bytes + 1);
    const std::lock_guard lock(mutex_);
    kept_.push_back(memory);
    return {memory, memory, [](void*) {}, kHost};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return [](void*) {};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  c10::Allocator* const before_;
  std::mutex mutex_;
  std::vector<void*> kept_;
};

class GraphOnHost final : public DeviceGraph {
 public:
  ~GraphOnHost() override { end_quietly(); }
  void begin() override { graph_.begin(), recording_ = true; }
  void end() override {
    if (!end_quietly())
      throw c10::AcceleratorError({__func__, __FILE__, 0}, 904, "CUDA error: capturing stream has unjoined work");
  }
  void replay() override { graph_.replay(); }

 private:
  bool end_quietly() { return std::exchange(recording_, false) && graph_.end(); }
  nccl::HostGraph graph_;
  bool recording_ = false;
};

// Only its graphs are used.
struct GraphsOnHost final : IdleDevice {
  std::unique_ptr<DeviceGraph> new_graph(const at::Device&, int64_t) override {
    return std::make_unique<GraphOnHost>();
  }
  std::unique_ptr<DeviceMark> new_mark(const at::Device&) override { return nullptr; }
};

// Groups that write their calls down, as those of a run.
struct Noted final : Communicator {
  Noted(std::shared_ptr<Communicator> of, std::shared_ptr<FlightRecord> record)
      : inner(std::move(of)), flight(std::move(record)) {}
  GroupPtr make_group(const std::vector<int64_t>& ranks, const std::string& label) override {
    return recorded_group(inner->make_group(ranks, label), flight);
  }
  void abort(const std::string& reason) noexcept override { inner->abort(reason); }
  const std::shared_ptr<Communicator> inner;
  const std::shared_ptr<FlightRecord> flight;
};

// y = x w, element by element; the step enqueues it.
struct Scaling final : Unit {
  explicit Scaling(int64_t index)
      : Unit(concat("unit.", index)),
        weight(std::make_shared<Param>(name() + ".weight", Layout::whole({index == 1 ? kNumel : 2 * kNumel}),
                                       InitRule::ones())) {}
  std::vector<ParamPtr> params() const override { return {weight}; }
  Tensors forward(const Tensors& x, StepContext&, Saved&) override { return x; }
  Tensors backward(const Tensors& dy, StepContext&, Saved&) override { return dy; }
  const ParamPtr weight;
};

struct Sharing final : SharingStrategy {
  Sharing(const Services& services, const ShardingOptions& options) : SharingStrategy(services) { options_ = options; }
};

inline float* floats(const at::Tensor& t) { return static_cast<float*>(t.mutable_data_ptr()); }

// Elements of all units' values by step, as an evaluation reads them, and the communicator's calls.
struct Outcome {
  std::vector<std::vector<float>> values;
  std::vector<std::string> calls;
};

// One rank. It does what Trainer does: gradients as one part, an exchange that is not recorded, the update as another.
class HostRun {
 public:
  HostRun(Rank& r, const ShardingOptions& options, int64_t warm_up)
      : flight_(std::make_shared<FlightRecord>(r.rank(), r.size())),
        communicator_(std::make_shared<Noted>(r.communicator, flight_)),
        mesh_({Axis{"dp", r.size(), r.rank(), true}}, r.rank(), r.size(), communicator_, kHost),
        world_(mesh_.world()),
        state_(/*seed=*/0, &units_),
        gradients_(graphs_, kHost, 0, warm_up, flight_.get()),
        update_(graphs_, kHost, 0, warm_up, flight_.get()) {
    r.services.mesh = &mesh_;
    for (int64_t u = 0; u < kUnits; ++u) units_.units.push_back(std::make_shared<Scaling>(u));
    strategy_ = std::make_unique<Sharing>(r.services, options);
    strategy_->attach(units_);
    for (int64_t u = 0; u <= kUnits; ++u) x_.push_back(at::empty({2 * kNumel})), dx_.push_back(at::empty({2 * kNumel}));
    for (int64_t i = 0; i < 2 * kNumel; ++i)
      floats(x_[0])[i] = 0.5F + 0.01F * static_cast<float>(i % 13) + 0.25F * static_cast<float>(r.rank());
    for (Trainables& chunk : strategy_->trainables()) {
      for (const Trainable& t : chunk) std::fill_n(floats(t.value), t.value.numel(), 0.9F);
      strategy_->after_update(chunk, state_);
    }
  }

  Outcome run() {
    Outcome outcome;
    for (int64_t step = 1; step <= kSteps; ++step) {
      begin(step, Mode::train);
      hook("step_begin", [&] { strategy_->step_begin(state_); });
      gradients_.run([&] { compute_gradients(); });
      world_->all_gather(all_, mine_)->wait();
      wait_for_device();
      update_.run([&] { update(); });
      if (step % 2 == 0) outcome.values.push_back(evaluate(step));
    }
    for (const FlightEntry& e : flight_->entries())
      outcome.calls.push_back(concat(e.group, " ", name_of(e.call.op), " #", e.call.number, " ", e.call.bytes));
    return outcome;
  }

 private:
  template <class Call>
  void hook(const char* name, const Call& call) {
    static const std::string id = "test/sharing";
    plugin_call({id, name}, call);
  }

  void begin(int64_t step, Mode mode) {
    std::vector<Visit> visits;
    for (int64_t u = 0; u < kUnits; ++u) visits.push_back({u, 0, Direction::forward, Part::whole, true, true});
    for (int64_t u = kUnits; u-- > 0 && mode == Mode::train;)
      visits.push_back({u, 0, Direction::backward, Part::whole, true, true});
    state_.begin(step, mode, visits);
  }

  const Param& weight(int64_t u) const { return *units_.units[u]->params()[0]; }

  void forward(const std::function<void(const Visit&)>& work) {
    for (int64_t u = 0; u < kUnits; ++u) {
      const Visit visit = state_.visit();
      hook("before_forward", [&] { strategy_->before_forward(visit, state_); });
      work(visit);
      hook("after_forward", [&] { strategy_->after_forward(visit, state_); });
      state_.next_visit();
    }
  }

  void compute_gradients() {
    forward([&](const Visit& visit) {
      const int64_t u = visit.unit, n = weight(u).tensor.numel();
      nccl::enqueue_on_host(nullptr,
                            [x = floats(x_[u]), w = floats(weight(u).tensor.detach()), y = floats(x_[u + 1]), n] {
                              for (int64_t i = 0; i < 2 * kNumel; ++i) y[i] = x[i] * w[i % n];
                            });
    });
    nccl::enqueue_on_host(nullptr, [y = floats(x_[kUnits]), dy = floats(dx_[kUnits])] {
      for (int64_t i = 0; i < 2 * kNumel; ++i) dy[i] = y[i] - 1;
    });
    for (int64_t u = kUnits; u-- > 0;) backward(u);
    hook("flush_grads", [&] { strategy_->flush_grads(state_); });
  }

  void backward(int64_t u) {
    const Visit visit = state_.visit();
    hook("before_backward", [&] { strategy_->before_backward(visit, state_); });
    hook("before_grads", [&] { strategy_->before_grads(visit, state_); });
    Param& param = *units_.units[u]->params()[0];
    const int64_t n = param.tensor.numel();
    nccl::enqueue_on_host(nullptr, [x = floats(x_[u]), w = floats(param.tensor.detach()), dy = floats(dx_[u + 1]),
                                    dx = floats(dx_[u]), g = floats(param.write_grad().slot), n] {
      std::fill_n(g, n, 0.0F);
      for (int64_t i = 0; i < 2 * kNumel; ++i) g[i % n] += dy[i] * x[i], dx[i] = dy[i] * w[i % n];
    });
    hook("after_backward", [&] { strategy_->after_backward(visit, state_); });
    hook("values_done", [&] { strategy_->values_done(visit, state_); });
    state_.next_visit();
  }

  void update() {
    for (Trainables& chunk : strategy_->trainables()) {
      for (const Trainable& t : chunk)
        nccl::enqueue_on_host(nullptr, [w = floats(t.value), g = floats(t.grad), n = t.value.numel()] {
          for (int64_t i = 0; i < n; ++i) w[i] -= 0.05F * g[i];
        });
      hook("after_update", [&] { strategy_->after_update(chunk, state_); });
    }
  }

  std::vector<float> evaluate(int64_t step) {
    begin(step, Mode::evaluate);
    std::vector<float> values(kUnits * 2 * kNumel);
    forward([&](const Visit& visit) {
      nccl::enqueue_on_host(nullptr,
                            [w = floats(weight(visit.unit).tensor.detach()), to = &values[visit.unit * 2 * kNumel],
                             n = weight(visit.unit).tensor.numel()] { std::copy_n(w, n, to); });
    });
    wait_for_device();
    return values;
  }

  void wait_for_device() const {
    if (!device_.synchronize(kEndsWithinS)) {
      communicator_->abort("the run hangs");
      throw std::runtime_error("the run hangs");
    }
  }

  const nccl::HostDevice device_;
  GraphsOnHost graphs_;
  const std::shared_ptr<FlightRecord> flight_;
  const std::shared_ptr<Noted> communicator_;
  const Mesh mesh_;
  const GroupPtr world_;
  UnitList units_;
  StepState state_;
  std::unique_ptr<Sharing> strategy_;
  std::vector<at::Tensor> x_, dx_;  // before and behind each unit
  at::Tensor all_ = at::ones({2}, at::kFloat), mine_ = at::ones({1}, at::kFloat);
  RecordedPart gradients_, update_;
};

}  // namespace drivetrain::test
