// How many threads really work in loops over at::parallel_for: in the library, in plugins and in LibTorch.
// GOMP_parallel, with which code that is compiled with OpenMP opens a parallel region,
// is replaced by one that looks who comes; code that is compiled without OpenMP never calls it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include <drivetrain/random.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

using Body = void (*)(void*);

class Onlooker {
 public:
  struct Region {
    Body body;
    void* data;
    std::string library;  // that the loop stands in
  };

  void open(Body body, void* data, unsigned threads, unsigned flags) {
    static const auto next =
        reinterpret_cast<void (*)(Body, void*, unsigned, unsigned)>(dlsym(RTLD_NEXT, "GOMP_parallel"));
    Dl_info place = {};
    dladdr(reinterpret_cast<void*>(body), &place);
    Region region{body, data, std::filesystem::path(place.dli_fname ? place.dli_fname : "?").filename()};
    next(enter, &region, threads, flags);
  }
  std::map<std::string, std::set<pid_t>> threads_by_library() {
    const std::lock_guard lock(mutex_);
    return std::exchange(seen_, {});
  }

 private:
  static void enter(void* data);

  std::mutex mutex_;
  std::map<std::string, std::set<pid_t>> seen_;
};

Onlooker onlooker;

void Onlooker::enter(void* data) {
  const Region& region = *static_cast<Region*>(data);
  {
    const std::lock_guard lock(onlooker.mutex_);
    onlooker.seen_[region.library].insert(gettid());
  }
  region.body(region.data);
}

// The OpenMP runtimes in this process.
std::set<std::string> runtimes() {
  std::set<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    for (const char* name : {"/libgomp", "/libomp", "/libiomp"})
      if (line.find(name) != std::string::npos) found.insert(line.substr(line.find('/')));
  return found;
}

constexpr int kThreads = 3;  // more than two, so that a count that stands for "all cores" shows

class Threads : public testing::Test {
 protected:
  Threads() { at::set_num_threads(kThreads), onlooker.threads_by_library(); }
  ~Threads() override { at::set_num_threads(1); }

  // A run of one rank in this thread.
  static std::map<std::string, std::set<pid_t>> seen_in(const std::string& optimizer, const std::string& run) {
    const TempFolder folder;
    Value config = parse_json(R"({"train_steps": 2, "seed": 7, "train_micro_batch_size_per_gpu": 4, "monitors": "jsonl",
      "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "vocab_size": 4096,
                "max_position_embeddings": 128, "hidden_dropout": 0.1}},
      "dataset": {"type": "synthetic", "params": {"seq_length": 128}}})",
                              "test");
    config.set("optimizer", parse_json(optimizer, "test"));
    config.set("output_dir", folder.path(run));
    train_as_rank(config, 0, 1, make_local_store(), built_plugins(), kThreads);
    return onlooker.threads_by_library();
  }
};

TEST_F(Threads, all_that_were_asked_for_work_in_a_loop_of_code_that_links_the_library) {
  std::mutex mutex;
  std::set<pid_t> workers;
  at::parallel_for(0, 300, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    workers.insert(gettid());
  });
  EXPECT_EQ(workers.size(), size_t{kThreads});
}

TEST_F(Threads, all_work_in_a_training_step_and_they_are_one_pool) {
  for (const auto& [optimizer, plugin] :
       {std::pair(R"({"type": "AdamW", "params": {"lr": 1e-3}})", "optimizer_adamw.so"),
        std::pair(R"({"type": "SGD", "params": {"lr": 1e-3}})", "optimizer_sgd.so")}) {
    const auto seen = seen_in(optimizer, "run");
    std::set<pid_t> all;
    for (const auto& [library, threads] : seen) all.insert(threads.begin(), threads.end());
    for (const char* library : {"libdrivetrain.so", plugin}) {
      ASSERT_TRUE(seen.contains(library)) << library << " opened no parallel region";
      EXPECT_EQ(seen.at(library).size(), size_t{kThreads}) << library;
    }
    EXPECT_TRUE(seen.contains("libtorch_cpu.so")) << "its products have threads; are they counted?";
    EXPECT_EQ(all.size(), size_t{kThreads}) << "LibTorch, the library and the plugin share one pool";
  }
}

TEST_F(Threads, come_from_the_runtime_that_LibTorch_brings) {
  const std::set<std::string> found = runtimes();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found.begin()->ends_with("/torch/lib/libgomp.so.1")) << *found.begin();
}

TEST_F(Threads, all_work_on_random_numbers) {
  at::Tensor values = at::empty({1 << 20}, at::TensorOptions(at::kFloat));
  fill_normal(values, 7, "weight", 0, 1.0);
  EXPECT_EQ(onlooker.threads_by_library()["libdrivetrain.so"].size(), size_t{kThreads});
}

}  // namespace
}  // namespace drivetrain::test

extern "C" __attribute__((visibility("default"))) void GOMP_parallel(void (*body)(void*), void* data, unsigned threads,
                                                                     unsigned flags) {
  drivetrain::test::onlooker.open(body, data, threads, flags);
}
