// Random training runs by a fixed seed: shape, data, cut into micro-batches, optimizer and schedule of a small model,
// as a config for the program and as facts for the plain formulas. Value types; drawing the same index again gives the
// same case on every machine. Legend: K steps, G rows of the global batch, S sequence.
#pragma once

#include <map>
#include <random>
#include <string>

#include <drivetrain/value.h>

#include "composition/plain_gpt.h"

namespace drivetrain::test {

// Integers and numbers from the engine alone: the standard fixes its bits, but not those of its distributions.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int64_t between(int64_t low, int64_t high) { return low + int64_t(engine_() % uint64_t(high - low + 1)); }
  double real(double low, double high) { return low + (high - low) * (double(engine_() >> 11) * 0x1p-53); }
  bool chance(double p) { return real(0, 1) < p; }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[between(0, int64_t(list.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

struct CaseSchedule {
  std::string type;  // DeepSpeed's name, or empty
  std::string warmup_type = "linear";
  int64_t warmup = 3, total = 6;
  double low = 0;  // warmup_min_lr; for the cosine warmup_min_ratio and cos_min_ratio
};

struct Case {
  int index = 0;
  PlainShape shape;
  double init_std = 0.02;
  bool from_folder = false;  // start from a folder with random biases and gains, not from the config's own values

  int64_t steps = 5, rows = 0, sequence = 0;  // rows: of the global batch
  int64_t file_micro_batches = 1;
  bool labels_in_file = false;
  at::Tensor tokens_KGS, labels_KGS;    // tokens has S + 1 columns
  std::map<int, int64_t> accumulation;  // by number of ranks
  bool same_micro_batches = false;      // whatever the number of ranks

  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, clip = 0;
  bool decay_all = false;
  CaseSchedule schedule;
};

Case draw_case(int index);

// The case's batches as a file of dataset/token_batches.
void write_batches(const Case& c, const std::string& path);

// Starting weights that show a swapped or forgotten bias or gain: those of `folder`, vectors moved at random.
void write_moved_folder(const Case& c, const std::string& folder, const std::string& moved_folder);

// The config of a run, without output_dir; `start`: folder of the weights, empty for the config's own values.
Value train_config(const Case& c, int ranks, const std::string& attention, const std::string& batches,
                   const std::string& start);
// One step that changes nothing: its final weights are the initial ones.
Value initial_config(const Case& c, int ranks, const std::string& batches);

}  // namespace drivetrain::test
