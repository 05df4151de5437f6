// Ten steps of training as figures, the one-process curves that they are compared with, and how far they may be away.
// Legend: K steps, G rows of the global batch, S sequence.
//
// Tolerances. All of a run is float32, and what a cell may change is the order of sums: over micro-batches, over ranks,
// over parts of a layer or a sequence. So the one-process run is repeated in every order that one process has - the
// global batch in 1, 2, 3, 6 and 12 micro-batches, either attention, either kind of block - and the largest distance of
// two of these runs up to a step, times eight, is what a cell may be away in that step; never less than 16 roundings of
// the loss. A mixture has losses that are means over a micro-batch, which is one row for it everywhere: its orders are
// those of the rows. AdamW's eps is large (1e-4), so that an element whose exact gradient is zero (a bias of keys) does
// not move by its rounding errors, and gradients are clipped, so that a wrong norm shows in everything. matrix_test.cpp
// shows that small mistakes are outside. Thread: main. The files are in one temporary folder of the process.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <drivetrain/value.h>

#include "matrix/cells.h"
#include "support/train_threads.h"

namespace drivetrain::test {

constexpr int64_t kSteps = 10, kRows = 12, kSequence = 16, kMicroBatches = 3, kVocabulary = 97;
constexpr int64_t kStepWithoutLabels = 6;  // no row of it has a label that counts

struct Curve {
  std::vector<double> losses, norms;  // -1 where the step has none
  std::vector<int64_t> tokens;
  std::map<std::string, std::vector<double>> terms;  // "loss_terms.NAME" by NAME
  std::map<std::string, at::Tensor> weights;         // of the final folder
  std::set<std::string> plugins;                     // that were chosen, "kind/name"
};

struct Tolerance {
  std::vector<double> loss, norm;  // absolute, relative; per step
  double weight = 0;               // absolute, any element
  double term = 0;                 // relative, of any loss beside, in any step
};
struct Reference {
  Curve curve;
  Tolerance tolerance;
};

// Steps, data, optimizer and clipping of every cell; without a model. The batches' rows have labels that do not count,
// of each row another number.
Value base_config();

// Ranks as threads. `config` gets a folder of its own, which is gone afterwards.
Curve run_curve(Value config, int ranks, const Registry& registry = built_plugins());
// What a run left in its folder.
Curve read_curve(const std::string& run_folder);

// The first plugin that the cell asks for and the run did not have, or nothing.
std::string missing_plugin(const Cell& cell, const Curve& curve);

// The spread of several runs of one computation.
Tolerance tolerance_of(const std::vector<Curve>& runs);

// Of the plain one-process run of a config's model, optimizer and adapters: standard attention, the model's blocks,
// kMicroBatches micro-batches (of a mixture: one a row), nothing sharded or computed again. Made once for each.
const Reference& reference_of(const Value& config);

struct Deviation {
  double loss = 0, norm = 0, weight = 0, term = 0;  // the largest found; absolute, relative, absolute, relative
  double tolerances = 0;  // the largest of all as a multiple of its tolerance; infinite: something missing
  std::string where;      // of that one
  std::string outside;    // one line each, of what is outside its tolerance
};
Deviation deviation(const Curve& found, const Reference& reference);

}  // namespace drivetrain::test
