// Negotiation: what is known before anything is allocated, and what a plugin says about itself and its needs.
// The composer solves the mesh, matches needs with abilities and reports all problems at once with both parties named.
// Owned by the runtime, valid during `plan`. Thread: main.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <drivetrain/export.h>
#include <drivetrain/fact.h>

DRIVETRAIN_CONTRACT(plan_context)

namespace drivetrain {

// What a model tells about itself, the same in every round. Sizes in elements. Not every model has those that are a
// Fact: one without attention leaves its heads unsaid.
struct ModelFacts {
  int64_t num_layers = 0, hidden_size = 0, vocab_size = 0, max_position_embeddings = 0;
  Fact<int64_t> num_attention_heads{"num_attention_heads", Round::model};
  Fact<int64_t> num_query_groups{"num_query_groups", Round::model};  // key/value heads
  Fact<int64_t> head_dim{"head_dim", Round::model};
  Fact<int64_t> ffn_hidden_size{"ffn_hidden_size", Round::model};
  int64_t parameters = 0;  // a tied tensor once
  double attention_dropout = 0, hidden_dropout = 0;
  // Floating-point operations of forward and backward per token at sequence length S, without recompute:
  // flops_per_token_fixed + flops_per_token_S * S. `flops_formula` says in words how they are counted.
  double flops_per_token_fixed = 0, flops_per_token_S = 0;
  std::string flops_formula;
};

// What the run asks for. Filled by the runtime from the configuration, and by what plugins said in earlier rounds of
// `plan` (plugin.h). A Fact is known from the round on that it names; reading it before is an Error(plugin).
struct RunFacts {
  int64_t world_size = 1;
  std::string device = "cpu";
  std::string compute_dtype = "float32";
  double compute_bytes = 4;  // of one element of it
  int64_t train_steps = 0;
  bool training = true;  // false: evaluation or generation only
  uint64_t seed = 0;
  // Micro-batches summed before their gradients are summed over ranks; 0: all of a step.
  std::optional<int64_t> reduce_every;

  // Of a step: rows of all ranks, rows of one micro-batch on one rank, micro-batches of one rank.
  Fact<int64_t> train_batch_size{"train_batch_size", Round::first};
  Fact<int64_t> micro_batch_size{"micro_batch_size", Round::first};
  Fact<int64_t> accumulation{"accumulation", Round::first};
  Fact<int64_t> seq_length{"seq_length", Round::data};

  // Ranks left over after all axes with a fixed size; the axes that data_parallel plugins claim are not counted.
  Fact<int64_t> rest_ranks{"rest_ranks", Round::axes};
  Fact<std::string> taken_ranks{"taken_ranks", Round::axes};  // "tp 2 x pp 2": those axes, for messages; empty: none
  // Product of the axes that join the gradient reduction without being data_parallel's: parts of one sequence.
  Fact<int64_t> joined_ranks{"joined_ranks", Round::axes};
  // Ranks that share every layer: product of what plugins said by PlanContext::share_layers.
  Fact<int64_t> layer_ranks{"layer_ranks", Round::axes};
  // Query heads, and key/value heads, that this plugin's place in the run sees in attention on one rank: those of the
  // model, less what other plugins said by share_layers, and by share_attention_heads before this one. Each at least 1.
  // Not known for a model without heads.
  Fact<int64_t> heads_per_rank{"heads_per_rank", Round::axes};
  Fact<int64_t> groups_per_rank{"groups_per_rank", Round::axes};

  // Share of the model's parameters on the fullest rank, before a data_parallel plugin shares them out.
  Fact<double> rank_share{"rank_share", Round::built};
  Fact<int64_t> rank_layers{"rank_layers", Round::built};  // blocks on the fullest rank
  // Positions of a sequence that a rank has between layers, after all cuts. In training only.
  Fact<int64_t> rank_positions{"rank_positions", Round::built};
  // Micro-batches whose activations a rank holds at most.
  Fact<int64_t> micro_batches_in_flight{"micro_batches_in_flight", Round::built};
};

// What a rank's memory is for: parameters as units compute with them; gradients; float32 masters and moments;
// buffers that come and go; what forward passes leave for their backward.
enum class MemoryClass { parameters, gradients, optimizer, buffers, activations };

// What a plugin sees and says in `plan`. Implemented by the runtime; a test of a plugin takes PlanRecord
// (plan_record.h).
class DRIVETRAIN_API PlanContext {
 public:
  static constexpr int64_t kRest = 0;
  // Where axes stand unless the configuration orders them: fast links inside.
  enum Place : int {
    kTensorPlace = 0,
    kHeadsPlace = 10,
    kContextPlace = 20,
    kDataPlace = 30,
    kReplicaPlace = 40,
    kStagePlace = 50
  };

  virtual ~PlanContext();

  virtual const ModelFacts& model() const = 0;
  virtual const RunFacts& run() const = 0;

  // Asks for an axis of the mesh. `size` kRest: all ranks that no other claim takes. `place`: its order in the mesh,
  // fastest first, see Place.
  virtual void claim_axis(const std::string& axis, int64_t size, bool joins_gradients, int place) = 0;
  // Every layer of this rank has 1 / `ranks` of the model's heads and inner columns.
  virtual void share_layers(int64_t ranks) = 0;
  // What lies inside of this plugin's attention has 1 / `ranks` of the heads that the plugin itself is given.
  virtual void share_attention_heads(int64_t ranks) = 0;

  // Abilities are words "kind.what", matched by equal text. Those of attention: attention.returns_lse, .varlen,
  // .window, .q_offset, .non_causal, .deterministic, .partial_keys, .partial_heads (AttentionAbilities). The runtime
  // itself offers kWholePositions.
  virtual void offer(const std::string& ability) = 0;
  // The run is refused if nobody offers it, or if a plugin before this one takes it away.
  virtual void need(const std::string& ability, const std::string& why) = 0;
  // Plugins that come after this one, in the order in which kinds nest and the configuration lists plugins of one kind,
  // cannot have the ability any more.
  virtual void take_away(const std::string& ability, const std::string& why) = 0;
  // Attention inside of this plugin is called once for all keys of a query, with positions in ascending order.
  static constexpr const char* kWholePositions = "attention.whole_positions";

  // Says why this plugin cannot do the run, and what to do: "dropout 0.1 is not supported (0 only); set it to 0".
  virtual void refuse(const std::string& problem) = 0;
  // Expensive but legal: shown by --plan and once at the start.
  virtual void cost(const std::string& line) = 0;
  // Whole steps with this plugin may be recorded as a CUDA graph and replayed:
  // its hooks only enqueue work, they neither read the device, nor decide by its values, nor count steps.
  virtual void capturable() = 0;
  // A key that changes nothing in this run, and why; shown once at the start.
  virtual void no_effect(const std::string& key, const std::string& why) = 0;
  // Bytes this plugin will hold on each rank, added up by class of memory and shown beside what was measured.
  virtual void memory(MemoryClass memory_class, const std::string& what, double bytes) = 0;
  // Bytes a rank sends in a step along an axis of the mesh, by what they are.
  virtual void traffic(const std::string& axis, const std::string& what, double bytes) = 0;
  // How many elements this rank's optimizer updates, by who shares them out: for the plan of its state.
  // Unsaid: all of them.
  virtual void updates(double elements) = 0;
};

}  // namespace drivetrain
