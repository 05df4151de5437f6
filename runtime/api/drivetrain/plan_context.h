// Planning, before anything is allocated: the facts that a plugin reads in Plugin::plan, and what it declares there.
// The runtime solves the mesh, matches needs with abilities, and reports all problems at once with both plugins' names.
// Owned by the runtime, valid during the call of `plan`. Thread: main. Every declaration may be made any number of
// times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/export.h>
#include <drivetrain/fact.h>

DRIVETRAIN_CONTRACT(plan_context)

namespace drivetrain {

// What a model says about itself, the same in every round. Sizes in elements. A model sets only those facts that it
// has: a model without attention does not set the number of heads.
struct DRIVETRAIN_API ModelFacts {
  int64_t num_layers = 0, hidden_size = 0, vocab_size = 0, max_position_embeddings = 0;
  Fact<int64_t> num_attention_heads{"num_attention_heads", Round::if_model_has_it};
  Fact<int64_t> num_query_groups{"num_query_groups", Round::if_model_has_it};  // key/value heads
  Fact<int64_t> head_dim{"head_dim", Round::if_model_has_it};
  Fact<int64_t> ffn_hidden_size{"ffn_hidden_size", Round::if_model_has_it};
  int64_t parameters = 0;  // number of elements; a tied parameter counts once
  double attention_dropout = 0, hidden_dropout = 0;
  // Floating-point operations of forward and backward per token at sequence length S, without recompute:
  // flops_per_token_fixed + flops_per_token_S * S. `flops_formula` is a text that says how they are counted.
  double flops_per_token_fixed = 0, flops_per_token_S = 0;
  std::string flops_formula;
  // Attention layers that see a window of keys, one entry for each size of window. `flops_per_token_S` is theirs as if
  // there were no window, and not part of the one above.
  struct Windowed {
    int64_t window = 0;
    double flops_per_token_S = 0;
  };
  std::vector<Windowed> windowed;
  // All of it at sequence length S. A window w < S of causal attention counts as a length of 2 w - w^2 / S, which has
  // as many pairs of queries and keys.
  double flops_per_token(double S) const;
  double attention_softcap = 0;   // AttentionArgs::softcap of any layer
  int64_t parameters_active = 0;  // of `parameters`, those that one token uses (mixtures of experts); 0: all
  // Of a mixture: experts of a layer, how many a token chooses, layers that have them, and the elements of all experts
  // of all layers, which are part of `parameters`. 0: the model has no experts.
  struct Mixture {
    int64_t experts = 0, chosen = 0, layers = 0, parameters = 0;
  };
  Mixture mixture;
};

// What is known of the run: from the configuration, and from what plugins declared in earlier rounds of `plan`
// (plugin.h). A Fact is known from the round that it names; reading it earlier throws Error(plugin).
struct RunFacts {
  int64_t world_size = 1;
  std::string device = "cpu";
  std::string compute_dtype = "float32";
  double compute_bytes = 4;  // bytes per element of compute_dtype
  int64_t train_steps = 0;
  bool training = true;  // false: evaluation or generation only
  uint64_t seed = 0;
  // Micro-batches whose gradients are added before they are summed over ranks; 0: all of a step; not set: not
  // configured.
  std::optional<int64_t> reduce_every;

  // Of one step: rows over all ranks; rows of one micro-batch on one rank; micro-batches per rank.
  Fact<int64_t> train_batch_size{"train_batch_size", Round::configured};
  Fact<int64_t> micro_batch_size{"micro_batch_size", Round::configured};
  Fact<int64_t> accumulation{"accumulation", Round::configured};
  Fact<int64_t> seq_length{"seq_length", Round::data};
  Fact<bool> documents{"documents", Round::data};  // rows may hold several documents (Batch::cu_seqlens)

  // Ranks that the other plugins' axes of fixed size leave to a data_parallel plugin, whose own axes are not counted.
  Fact<int64_t> rest_ranks{"rest_ranks", Round::axes};
  Fact<std::string> taken_ranks{"taken_ranks", Round::axes};  // the other axes for messages: "tp 2 x pp 2"; or empty
  // Product of the axes that other plugins than data_parallel claim and over which gradients are summed (cp, ep).
  Fact<int64_t> joined_ranks{"joined_ranks", Round::axes};
  // Ranks that have parts of one sequence: product of the axes that read other_positions (cp).
  Fact<int64_t> position_ranks{"position_ranks", Round::axes};
  // Number of ranks that share every layer: product of all PlanContext::split_layers.
  Fact<int64_t> tensor_ranks{"tensor_ranks", Round::axes};
  // Query heads, and key/value heads, of one rank's attention as this plugin sees it: the model's number divided by all
  // split_layers, and by split_attention_heads of the plugins outside of this one. At least 1. Never known for a model
  // without heads.
  Fact<int64_t> heads_per_rank{"heads_per_rank", Round::axes};
  Fact<int64_t> groups_per_rank{"groups_per_rank", Round::axes};

  // Fraction of the model's parameters on the rank with the most, before a data_parallel plugin shards them.
  Fact<double> rank_share{"rank_share", Round::built};
  // The same of trainable parameters alone (Param::trainable): those with gradients and state.
  Fact<double> rank_trained{"rank_trained", Round::built};
  // Blocks on the rank with the most; never known for a model without blocks.
  Fact<int64_t> rank_layers{"rank_layers", Round::built};
  // Positions of a sequence that one rank has between layers, after all cuts. In training only.
  Fact<int64_t> rank_positions{"rank_positions", Round::built};
  // The largest number of micro-batches whose activations one rank holds at a time.
  Fact<int64_t> micro_batches_in_flight{"micro_batches_in_flight", Round::built};
};

// What memory is used for: parameters in compute dtype; gradients; float32 master weights and moments; temporary
// buffers; activations that forward keeps for backward.
enum class MemoryClass { parameters, gradients, optimizer, buffers, activations };

// One sort of copies between a rank's device and its host's memory.
struct HostTraffic {
  // What computation goes on meanwhile: none, so that the rank waits; that of these micro-batches' forward or backward
  // passes; or the optimizer's.
  enum class Beside { nothing, forward, backward, update };
  std::string what;           // "gradients to the host"
  double bytes = 0;           // of a whole step, one direction
  int64_t micro_batches = 1;  // over whose passes the copies are spread; counts for `forward` and `backward`
  Beside beside = Beside::nothing;
};

// The argument of Plugin::plan. Implemented by the runtime; tests of plugins use PlanRecord (plan_record.h).
class DRIVETRAIN_API PlanContext {
 public:
  static constexpr int64_t kRest = 0;
  // The order of axes in the mesh unless the configuration sets "mesh_order": axes that need fast links come first.
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

  // What the ranks along an axis compute with: the same micro-batch (tp, pp); other positions of the same rows (cp); or
  // other rows, so that the batch of a step is divided over them (dp, ep). With other positions or rows, gradients are
  // summed along the axis (Axis::joins_gradients).
  enum class Reads { same, other_positions, other_rows };
  // Claims an axis of the mesh. `size` kRest: all ranks that no other claim takes. `place`: its position in the mesh,
  // smallest first, see Place.
  virtual void claim_axis(const std::string& axis, int64_t size, Reads reads, int place) = 0;
  // Declares: every layer of a rank has 1 / `ranks` of the model's heads and inner columns (tensor parallelism).
  virtual void split_layers(int64_t ranks) = 0;
  // Declares: the attention that this plugin wraps gets 1 / `ranks` of the heads that the plugin gets (Ulysses).
  virtual void split_attention_heads(int64_t ranks) = 0;

  // Declares an ability of this plugin. Abilities are names "kind.what" and are compared as text. Attention plugins
  // offer attention.returns_lse, .varlen, .window, .softcap, .q_offset, .non_causal, .deterministic, .partial_keys and
  // .partial_heads (AttentionAbilities). The runtime offers kWholePositions.
  virtual void offer(const std::string& ability) = 0;
  // Requires an ability. The run is refused if no plugin offers it, or if a plugin outside of this one takes it away.
  // `why` and the plugins' names appear in the message.
  virtual void need(const std::string& ability, const std::string& why) = 0;
  // Declares that plugins inside of this one do not have the ability any more. (Order: strategy.h; plugins of one kind
  // in the order of the configuration, outermost first.)
  virtual void take_away(const std::string& ability, const std::string& why) = 0;
  // Attention is called once with all keys of a query, in ascending order of position.
  static constexpr const char* kWholePositions = "attention.whole_positions";

  // Refuses the run. The text says why, and what to do: "dropout 0.1 is not supported (0 only); set it to 0".
  virtual void refuse(const std::string& problem) = 0;
  // Reports something expensive but legal; shown by --plan and once at the start.
  virtual void cost(const std::string& line) = 0;
  // Declares that whole steps with this plugin may be recorded as a CUDA graph and replayed. Its hooks then only
  // enqueue work: they do not read values from the device and do not count steps. A replay does not call them.
  virtual void capturable() = 0;
  // Reports a configuration key that changes nothing in this run, and why; shown once at the start.
  virtual void no_effect(const std::string& key, const std::string& why) = 0;
  // Reports bytes that this plugin will hold on each rank. The plan adds them up by class and compares with
  // measurements.
  virtual void memory(MemoryClass memory_class, const std::string& what, double bytes) = 0;
  // Reports bytes that each rank sends per step along a mesh axis; `what` names them ("gradients").
  virtual void traffic(const std::string& axis, const std::string& what, double bytes) = 0;
  // Reports how many elements one rank's optimizer updates, for the estimate of the optimizer's state. Called by a
  // plugin that shards it; otherwise all elements of the rank.
  virtual void updates(double elements) = 0;

  // For a device with memory of its own, three more. As `memory`, of bytes in its host's memory, which need no room on
  // the device.
  virtual void host_memory(MemoryClass memory_class, const std::string& what, double bytes) = 0;
  // Reports what a rank's step copies between its device and its host's memory. Declare it in Plugin::plan.
  virtual void host_traffic(const HostTraffic& copies) = 0;
  // As `updates`, where values, gradients and state of these elements are in the host's memory and its processors
  // update them while the device waits; the last call of both counts. `to_device`: the parameters that units compute
  // with are on the device, and the update sends them (Trainable::working).
  virtual void updates_on_host(double elements, bool to_device) = 0;
};

}  // namespace drivetrain
