// What tests of a step's time compare with: a machine on which nothing but products takes time, and the work of a small
// model by hand.
#pragma once

#include <algorithm>

#include "predict/profile.h"
#include "predict/shape_work.h"

namespace drivetrain::by_hand {

// Products at the peak, whatever their shape, and nothing else that takes time.
inline Hardware ideal() {
  Hardware h;
  h.path = "ideal.json", h.name = "ideal", h.device = "cpu", h.ranks_per_host = 8, h.hosts = 1000;
  h.peak_tflops = Value::object();
  h.peak_tflops.set("bfloat16", 100.0);
  h.products = {.share = 1}, h.attention = {.share = 1};
  h.memory = {.gb_per_s = 1e9, .share = 1, .gib = 80};
  h.host_link = {.gb_per_s = 1e9, .share = 1}, h.network = {.gb_per_s = 1e9, .share = 1};
  return h;
}

inline ModelShape shape() {
  return {.layers = 8,
          .hidden = 1024,
          .heads = 16,
          .groups = 16,
          .head_dim = 64,
          .ffn = 4096,
          .vocab = 32000,
          .gated = false};
}
constexpr double kParameters = 8 * 12 * 1024.0 * 1024 + 2 * 32000 * 1024.0;

// Operations per token, forward and backward, the square of attention halved.
inline double model_flops(double seq_length) {
  return 6 * (8 * 12 * 1024.0 * 1024 + 32000 * 1024.0) + 6 * 8 * 1024.0 * seq_length;
}

struct Row {
  int64_t ranks = 1, tensor = 1, stages = 1, shard_ranks = 1;
  bool shard_values = false, recompute = false;
  std::string dtype = "bfloat16";
};
inline Row row() { return {}; }

// Of such a run, by hand: four sequences of 1024 in each of eight micro-batches.
inline StepWork work_of(const Row& r) {
  StepWork work;
  work.dtype = r.dtype, work.ranks = static_cast<double>(r.ranks), work.micro_batches = 8, work.tokens = 4 * 8 * 1024;
  const auto tensor = static_cast<double>(r.tensor), stages = static_cast<double>(r.stages);
  work.tokens /= tensor * stages;
  add_shape(work, shape(), {.tokens = 4 * 1024, .seq_length = 1024, .tensor = tensor, .stages = stages});
  work.again = work.attention_again = work.passes_again = r.recompute ? 1 : 0;
  work.bubble = (stages - 1) / work.micro_batches;
  const int64_t replicas = r.ranks / (r.tensor * r.stages);
  const auto send = [&](const char* axis, const char* what, Collective collective, RankGroup group, double bytes,
                        double beside) {
    const Sent sent = sent_by_rank(collective, bytes, group.ranks);
    MessageWork message = {axis, what, group, sent.bytes, sent.hops};
    message.beside_micro_batches = beside;
    if (group.ranks > 1) work.messages.push_back(message);
  };
  const double bytes = 2 * kParameters / (tensor * stages), activations = 8.0 * 8 * 4 * 4 * 1024 * 1024 * 2;
  send("tensor", "activations summed", Collective::all_reduce, {r.tensor, 1}, activations, 0);
  send("data", "gradients summed", Collective::all_reduce, {replicas, r.tensor}, bytes, 1);
  const int64_t owners = r.shard_ranks < 0 ? replicas : std::min(r.shard_ranks, replicas);
  send("data", "values gathered", Collective::all_gather, {owners, r.tensor}, (r.shard_values ? 16 : 1) * bytes, 0);
  work.updated_elements = kParameters / static_cast<double>(owners), work.owners = static_cast<double>(owners);
  work.gradient_ranks = replicas > 1 ? static_cast<double>(replicas) : 0;
  return work;
}

inline StepTime time_of(const Row& r, const Hardware& h) { return step_time(work_of(r), h, model_flops(1024)); }

}  // namespace drivetrain::by_hand
