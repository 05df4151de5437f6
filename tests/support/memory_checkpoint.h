// A checkpoint in memory, made of what all ranks of a run hold, and a part of a run that ends with one. For tests of
// saving and loading without files. Thread: the caller's, which waits; ranks are threads.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/load_state.h"
#include "checkpoint/writers.h"
#include "plan/prepare_run.h"
#include "run/run_state.h"
#include "support/quiet_log.h"
#include "support/train_threads.h"
#include "train/resume.h"

namespace drivetrain::test {

class MemoryCheckpoint final : public Checkpoint {
 public:
  MemoryCheckpoint() = default;
  // Every part that some rank writes, once; an element that nobody or two ranks write is a failed expectation.
  explicit MemoryCheckpoint(const std::vector<HeldState>& ranks) {
    std::vector<std::vector<HeldPart>> parts;
    for (const HeldState& rank : ranks) parts.push_back(rank.parts());
    const auto writes = choose_writers(parts);
    facts_.set("counters", ranks.front().counters());
    std::map<std::string, at::Tensor> times;
    for (size_t r = 0; r < parts.size(); ++r)
      for (size_t i = 0; i < parts[r].size(); ++i) {
        if (!writes[r][i]) continue;
        const HeldPart& part = parts[r][i];
        if (!tensors_.count(part.name)) {
          tensors_[part.name] = at::zeros(part.shape, part.view.options());
          times[part.name] = at::zeros(part.shape, at::kInt);
        }
        window(tensors_[part.name], part.box).copy_(part.view);
        window(times[part.name], part.box).add_(1);
      }
    for (const auto& [name, count] : times) EXPECT_TRUE(at::equal(count, at::ones_like(count))) << name;
  }

  const Value& facts() const override { return facts_; }
  std::vector<StoredTensor> tensors() const override {
    std::vector<StoredTensor> list;
    for (const auto& [name, t] : tensors_) list.push_back({name, t.sizes().vec(), t.scalar_type()});
    return list;
  }
  void read(const std::string& name, const StateBox& box, const at::Tensor& into) const override {
    at::Tensor(into).copy_(window(tensors_.at(name), box));
  }
  std::vector<std::string> verify() const override { return {}; }

  std::map<std::string, at::Tensor> tensors_;

 private:
  static at::Tensor window(const at::Tensor& t, const StateBox& box) {
    const int64_t rows = t.dim() == 0 ? 1 : t.size(0);
    return t.view({rows, -1}).narrow(0, box.row, box.rows).narrow(1, box.column, box.columns);
  }
  Value facts_ = Value::object();
};

struct RunPart {
  std::map<int64_t, std::pair<double, double>> figures;  // loss and norm by step
  MemoryCheckpoint end;
};

// -1 where the step has none: no label of it counts.
inline double figure(const Value& data, const char* name) {
  return data.find(name)->is_null() ? -1 : data.find(name)->as_double();
}

// Trains `config` on `ranks` ranks from `from`, or from the beginning, up to step `last`; 0: no step at all.
inline RunPart run_part(const Value& config, int ranks, const Checkpoint* from, int64_t last) {
  const auto store = make_local_store();
  RunPart result;
  std::vector<std::unique_ptr<Run>> runs(static_cast<size_t>(ranks));
  std::vector<std::unique_ptr<HeldState>> held(static_cast<size_t>(ranks));
  const auto rank_main = [&](int r) {
    at::set_num_threads(1);
    Problems problems;
    const RunSettings settings = read_run_settings(config, "test.json", problems);
    const auto chosen = choose_plugins(config, built_plugins(), "cpu", problems);
    problems.throw_if_any();
    RankEnvironment environment;
    environment.rank = environment.local_rank = r, environment.world_size = environment.local_size = ranks;
    auto& run = runs[static_cast<size_t>(r)];
    run = std::make_unique<Run>(std::move(*prepare_run(
        settings, chosen, built_plugins(), {environment, store, std::make_shared<QuietLog>()}, Purpose::train)));
    build_run(*run);
    std::atomic<int> stop = 0;
    const auto publish = [&](int64_t step, const Value& data) {
      if (r == 0) result.figures[step] = {figure(data, "loss"), figure(data, "grad_norm")};
      if (step + 1 >= last) stop = 1;  // all ranks stop after the step that follows
    };
    Trainer trainer(trainer_parts(*run), publish, stop);
    if (from) {
      LoadState load(*from, *from->facts().find("counters"), *run->mesh);
      visit_state(run_state(*run, trainer), load);
      load.throw_if_incomplete();
      spread_values(*run);
    }
    if (last > 0) trainer.train();
    auto& state = held[static_cast<size_t>(r)];
    state = std::make_unique<HeldState>(*run->mesh, run_state(*run, trainer));
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        rank_main(r);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << r << ": " << e.what();
        stop_run(*store, e.what());
        if (runs[static_cast<size_t>(r)] && runs[static_cast<size_t>(r)]->plugins.communicator)
          runs[static_cast<size_t>(r)]->plugins.communicator->abort(e.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::vector<HeldState> all;
  for (auto& one : held)
    if (one) all.push_back(std::move(*one));
  if (all.size() == held.size()) result.end = MemoryCheckpoint(all);
  // Strategies wait in their ends for gathers that they have begun, which takes all ranks.
  std::vector<std::thread> ends;
  for (auto& run : runs) ends.emplace_back([&run] { run.reset(); });
  for (std::thread& end : ends) end.join();
  return result;
}

}  // namespace drivetrain::test
