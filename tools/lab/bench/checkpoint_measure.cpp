#include "bench/checkpoint_measure.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include <drivetrain/toolkit/files/durable.h>
#include <drivetrain/toolkit/seconds_since.h>

#include "checkpoint/load_state.h"
#include "checkpoint/writers.h"
#include "observe/memory.h"
#include "plugin_calls/plugin_call.h"
#include "rendezvous/gather_values.h"
#include "run/run_state.h"
#include "train/resume.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kChunk = size_t{4} << 20;
constexpr double kTimeout = 600;

struct FreeMemory {
  void operator()(char* memory) const { std::free(memory); }
};
std::unique_ptr<char, FreeMemory> chunk_memory() {
  return std::unique_ptr<char, FreeMemory>(static_cast<char*>(std::aligned_alloc(4096, kChunk)));
}

// As dd writes: chunk after chunk from one buffer, then fsync.
void write_plainly(const std::string& path, uint64_t bytes, bool past_cache) {
  const auto memory = chunk_memory();
  std::fill_n(memory.get(), kChunk, 'x');
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | (past_cache ? O_DIRECT : 0), 0600);
  if (file < 0) throw file_error(path, "create the file", errno, bytes);
  bool done = true;
  for (uint64_t at = 0; done && at < bytes; at += kChunk) done = ::write(file, memory.get(), kChunk) == kChunk;
  done = done && ::fsync(file) == 0;
  const int code = errno;
  ::close(file);
  if (!done) throw file_error(path, "write", code, bytes);
}

void cache_file(const std::string& path) {
  const auto memory = chunk_memory();
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw file_error(path, "open it for reading", errno);
  while (::read(file, memory.get(), kChunk) > 0) {
  }
  ::close(file);
}

// As many bytes of the files as fit into the memory.
void read_plainly(const std::vector<std::string>& files, std::vector<char>& memory) {
  size_t at = 0;
  for (const std::string& path : files) {
    if (at == memory.size()) break;
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) throw file_error(path, "open it for reading", errno);
    for (ssize_t found = 1; found > 0 && at < memory.size(); at += static_cast<size_t>(std::max<ssize_t>(found, 0)))
      found = ::read(file, memory.data() + at, std::min(kChunk, memory.size() - at));
    ::close(file);
  }
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// Saves at the first of every other block of steps.
class EveryOtherBlock final : public CheckpointPolicy {
 public:
  EveryOtherBlock(int64_t warmup, int64_t every) : warmup_(warmup), every_(every) {}
  bool due(const SaveMoment& moment) override {
    return !moment.last && moment.step > warmup_ && (moment.step - warmup_) % (2 * every_) == every_;
  }
  std::vector<bool> keep(const std::vector<StoredTag>& tags) override { return std::vector<bool>(tags.size(), false); }

 private:
  const int64_t warmup_, every_;
};

// The saver, with a clock.
class TimedSaver final : public BetweenSteps {
 public:
  TimedSaver(Saver& saver, int64_t warmup, int64_t every) : saver_(saver), warmup_(warmup), every_(every) {}

  Beside beside() override { return saver_.beside(); }
  void before_update() override {
    const auto start = Clock::now();
    saver_.before_update();
    stall_ += seconds_since(start);
  }
  uint64_t due(const StepResult& result, const Value& figures, bool last) override {
    return saver_.due(result, figures, last);
  }
  bool waits_for_ranks() const override { return saver_.waits_for_ranks(); }
  std::string policies_text(uint64_t policies) const override { return saver_.policies_text(policies); }
  void after_step(const StepResult& result, const Value& figures, bool save, bool last) override {
    const auto start = Clock::now();
    if (const int64_t steps = result.step - warmup_; steps >= 0 && steps % every_ == 0)
      end_block(start, steps / every_);
    saver_.after_step(result, figures, save, last);
    stall_ += seconds_since(start);
  }

  std::vector<double> without, with, stalls;
  double peak_before = 0;

 private:
  void end_block(Clock::time_point now, int64_t block) {
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    if (block == 1) peak_before = peak_memory_bytes();
    if (block > 0 && block % 2 == 1) without.push_back(seconds);
    if (block > 0 && block % 2 == 0) with.push_back(seconds), stalls.push_back(stall_);
    begin_ = now, stall_ = 0;
  }

  Saver& saver_;
  const int64_t warmup_, every_;
  Clock::time_point begin_;
  double stall_ = 0;
};

}  // namespace

CheckpointMeasure::CheckpointMeasure(Run& run, const RankEnvironment& env, std::string folder, int64_t warmup,
                                     int64_t every, int64_t rounds)
    : run_(run),
      env_(env),
      folder_(std::move(folder)),
      warmup_(warmup),
      every_(every),
      rounds_(rounds),
      world_(run.mesh->world()) {}

CheckpointTimes CheckpointMeasure::measure() {
  const std::atomic<int> no_stop = 0;
  Trainer trainer(
      trainer_parts(run_), [](int64_t, const Value&) {}, no_stop);
  train(trainer);
  stand_still(trainer);
  return std::move(times_);
}

void CheckpointMeasure::train(Trainer& trainer) {
  const std::string store = run_.plan.id_of(CheckpointStore::kKind);
  plugin_call({store, "open_place"}, [&] { run_.plugins.checkpoint_store->open_place(folder_, env_.rank == 0); });
  if (env_.rank == 0) check_no_tags(*run_.plugins.checkpoint_store, folder_);  // this command removes what it saves
  Saver saver({.store = *run_.plugins.checkpoint_store,
               .store_id = store,
               .policies = {{"bench", std::make_shared<EveryOtherBlock>(warmup_, every_)}},
               .exchange = *run_.store,
               .environment = env_,
               .log = *run_.log,
               .mesh = *run_.mesh,
               .state = run_state(run_, trainer),
               .facts = Value::object()});
  TimedSaver timed(saver, warmup_, every_);
  trainer.between_steps(&timed);
  trainer.train();
  trainer.between_steps(nullptr);
  times_.peak_after = peak_memory_bytes();
  times_.peak_before = timed.peak_before;
  times_.without = timed.without, times_.with = timed.with;
  for (const double stall : timed.stalls) times_.stalls.push_back(longest(stall));
}

void CheckpointMeasure::stand_still(Trainer& trainer) {
  CheckpointStore& store = *run_.plugins.checkpoint_store;
  const RunState state = run_state(run_, trainer);
  const HeldState held(*run_.mesh, state);
  const std::vector<bool> writes = choose_writers(held.parts(), *run_.store, env_, kTimeout);
  HostCopies copies;
  uint64_t needed = 0;  // bytes that a load of this rank takes
  for (const HeldPart& part : held.parts()) needed += part.bytes();
  for (int64_t round = 0; round < rounds_; ++round) {
    Snapshot snapshot{concat("still-", round), round, env_.rank, env_.world_size,
                      copies.begin(held.parts(), writes, false)};
    uint64_t bytes = 0;
    for (const StateSlice& slice : snapshot.slices) bytes += slice.data.nbytes();
    times_.snapshot_bytes = static_cast<double>(bytes);
    times_.write.push_back(together([&] {
      const Value part = store.write(snapshot);
      const auto parts = gather_values(*run_.store, concat("bench/part/", round), env_, part, kTimeout);
      if (env_.rank != 0) return;
      Value facts = Value::object();
      facts.set("counters", held.counters());
      store.commit(snapshot.tag, round, facts, parts);
    }));
    const std::string plain = concat(folder_, "/plain-", env_.rank);
    times_.direct.push_back(together([&] { write_plainly(plain, bytes, true); }));
    times_.cached.push_back(together([&] { write_plainly(plain, bytes, false); }));
    fs::remove(plain);
    world_->barrier();
    const std::vector<std::string> files = files_below(folder_);
    for (const std::string& file : files) cache_file(file);
    std::vector<char> memory(needed);
    times_.read.push_back(together([&] { read_plainly(files, memory); }));
    memory = {};
    times_.load.push_back(together([&] {
      const auto checkpoint = store.open(snapshot.tag);
      LoadState load(*checkpoint, *checkpoint->facts().find("counters"), *run_.mesh);
      visit_state(state, load);
      load.throw_if_incomplete();
    }));
    if (env_.rank == 0) times_.bytes = store.tags().front().bytes, store.remove(snapshot.tag);
    world_->barrier();
  }
}

double CheckpointMeasure::longest(double seconds) {
  const at::Device device = run_.services->device;
  const at::Tensor mine = at::full({1}, seconds, at::TensorOptions(at::kDouble).device(device));
  const at::Tensor all = at::empty({world_->size()}, mine.options());
  world_->all_gather(all, mine)->wait();
  return all.max().item<double>();
}

// Begins on all ranks at about the same time.
double CheckpointMeasure::together(const std::function<void()>& work) {
  world_->barrier();
  const auto start = Clock::now();
  work();
  return longest(seconds_since(start));
}

}  // namespace drivetrain
