// What a rank does in one training step, in amounts that know no machine: operations, bytes, messages. Of the average
// stage of a pipeline. A value; run_work.h makes it from a planned run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <drivetrain/plan_context.h>

#include "predict/links.h"

namespace drivetrain {

// y [rows, out] = x [rows, in] W^T, `count` times in a forward; a backward has two products of the same size each.
struct ProductWork {
  std::string what;
  double rows = 0, out = 0, in = 0, count = 0;
  std::string dtype = {};  // of its operands; "": StepWork's
  double together = 1;     // of `count`, those whose tiles run in the same waves, as of the experts of a layer
  bool of_experts = false;
  double flops() const { return 2 * rows * out * in * count; }
};

// What a rank sends along an axis in a step.
struct MessageWork {
  std::string axis, what;
  RankGroup group;
  double bytes = 0;     // sent by each rank
  double hops = 0;      // short messages one after another that the calls take, however few their bytes
  bool direct = false;  // each part goes straight to its rank (all-to-all), not through the ranks in between
  // The messages move beside the backward of this many micro-batches; 0: whoever needs them waits.
  double beside_micro_batches = 0;
  bool beside_update = false;  // they move beside the optimizer's products
};

struct StepWork {
  std::string dtype = "float32";
  double micro_batches = 1, tokens = 0;  // tokens: of a step, of one rank's share of the batch
  double ranks = 1, seq_length = 0;
  // Of one micro-batch.
  std::vector<ProductWork> products;  // of blocks
  std::vector<ProductWork> head;      // of the output layer, which no policy runs again
  double attention_flops = 0;         // forward, half of the square where it is causal, without what windows hide
  double attention_length = 0;        // positions that have as many pairs as a layer's attention; 0: seq_length
  double attention_backward = 2.5;    // times forward: a kernel computes the scores again
  double attention_bytes = 0, attention_bytes_backward = 0;  // of scores that the plugin keeps whole in memory, moved
  double passed_bytes = 0;  // what passes that are bound by memory read and write, forward
  double loss_bytes = 0;    // the same of logits and loss, both directions
  double again = 0, attention_again = 0, passes_again = 0;  // share of each that runs again in backward
  double unit_visits = 0;                                   // of units, both directions
  double bubble = 0;                                        // idle time of the pipeline over busy time
  // Of one step.
  double updated_bytes = 0;                  // what the optimizer reads and writes in the memory of the rank
  std::vector<ProductWork> update_products;  // of the optimizer: one of each, `count` times in a step
  double update_passed_bytes = 0;            // what passes beside them read and write
  double norm_bytes = 0;                     // of gradients, which their norm reads before
  double host_updated_bytes = 0;             // and in its host's, where the device has its own
  double updated_elements = 0;               // by the optimizer of a rank
  double owners = 1;                         // ranks that share the state of the same parameters out
  double gradient_ranks = 0;                 // over which gradients are summed
  double fixed_s = 0;                        // what the profile of another system says comes on top
  std::optional<double> overlap;             // what such a profile says in place of the machine's
  std::vector<MessageWork> messages;
  std::vector<HostTraffic> copies;
};

}  // namespace drivetrain
