// A study of runs that never ran: a slowdown of 3 %, a cell of half the speed, one with a wrong loss, and the A/A pair.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "study/records.h"

namespace drivetrain::study {

inline constexpr int kBlocks = 6;

// Noise of 1 % that is the same everywhere: a fixed sequence.
inline double noise(int i) { return 0.01 * (std::fmod(static_cast<double>(i) * 0.6180339887, 1.0) - 0.5) * 2; }

inline CellRecord cell_of(const std::string& id, const std::vector<std::pair<std::string, std::string>>& levels,
                          double step_s, int first_noise, double loss = 5) {
  CellRecord cell;
  cell.id = id, cell.levels = levels, cell.world_size = 2, cell.batch = 8, cell.seq_length = 32;
  cell.shape = {2, 64, 2, 2, 32, 256, 256, 32, 120576, false}, cell.model_flops = 7e5;
  for (int block = 0; block < kBlocks; ++block) {
    RunRecord run;
    run.block = block, run.state = State::ok, run.wall_s = 1, run.end = Value::object();
    const double drift = 1 + 0.05 * block;  // the machine becomes slower from block to block
    for (int step = 0; step < 12; ++step) {
      const double first = step == 0 ? 10 : 1;
      run.step_s.push_back(step_s * first * drift * (1 + noise(first_noise + block)));
      run.loss.push_back(loss - 0.01 * step), run.tokens.push_back(256);
    }
    cell.runs.push_back(run);
  }
  return cell;
}

inline StudyRecord planted() {
  StudyRecord study;
  study.name = "planted", study.gate = 1e-3, study.repeats = kBlocks, study.warmup.first = 2;
  study.environment = Value::object(), study.peak_tflops = 1;
  study.cells.push_back(cell_of("a=0,b=0", {{"a", "0"}, {"b", "0"}}, 0.01, 0));
  study.cells.push_back(cell_of("a=1,b=0", {{"a", "1"}, {"b", "0"}}, 0.0103, 7));
  study.cells.push_back(cell_of("a=0,b=1", {{"a", "0"}, {"b", "1"}}, 0.02, 13));
  study.cells.push_back(cell_of("a=1,b=1", {{"a", "1"}, {"b", "1"}}, 0.0206, 23));
  study.cells.push_back(cell_of("wrong", {{"a", "2"}, {"b", "0"}}, 0.005, 29, 5.1));
  study.cells.push_back(cell_of("A-A", {{"a", "0"}, {"b", "0"}}, 0.01, 31));
  study.cells.front().is_reference = true, study.cells.back().is_noise = true;
  return study;
}

}  // namespace drivetrain::study
