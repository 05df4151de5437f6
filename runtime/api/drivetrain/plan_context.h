// Negotiation: what is known before anything is allocated, and what a plugin says about itself and its needs.
// The composer solves the mesh, matches needs with abilities and reports all problems at once with both parties named.
// Owned by the runtime, valid during `plan`. Thread: main.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(plan_context)

namespace drivetrain {

// What a model tells about itself. Sizes in elements.
struct ModelFacts {
  int64_t num_layers = 0, hidden_size = 0, num_attention_heads = 0, num_query_groups = 0, head_dim = 0;
  int64_t ffn_hidden_size = 0, vocab_size = 0, max_position_embeddings = 0;
  int64_t parameters = 0;  // a tied tensor once
  double attention_dropout = 0, hidden_dropout = 0;
  // Floating-point operations of forward and backward per token at sequence length S, without recompute:
  // flops_per_token_fixed + flops_per_token_S * S. `flops_formula` says in words how they are counted.
  double flops_per_token_fixed = 0, flops_per_token_S = 0;
  std::string flops_formula;
  // Activations that a block leaves for its backward, elements per token:
  // those that every rank of a tensor-parallel group keeps, those it cuts;
  // and what it takes in, which is all that a recomputed block leaves.
  double kept_whole_per_token = 0, kept_cut_per_token = 0, input_per_token = 0;
  // What of these a block does not keep where it computes a region ("mlp.act") again, by the region's name.
  struct RegionFacts {
    std::string name;
    double whole_per_token = 0, cut_per_token = 0;
  };
  std::vector<RegionFacts> regions = {};
};

// What the run asks for. Filled by the runtime from the configuration.
struct RunFacts {
  int64_t world_size = 1;
  std::string device = "cpu";
  std::string compute_dtype = "float32";
  double compute_bytes = 4;                                              // of one element of it
  int64_t train_batch_size = 0, micro_batch_size = 0, accumulation = 0;  // 0 while not solved
  // micro-batches summed before their gradients are summed over ranks; 0: all of a step
  std::optional<int64_t> reduce_every;
  int64_t train_steps = 0;
  int64_t seq_length = 0;  // 0 until the dataset was opened, which comes after `plan`
  bool training = true;    // false: evaluation or generation only
  uint64_t seed = 0;
  // Of the mesh, as far as it is known: in the first of several rounds of `plan` these are what they are without other
  // plugins.
  // that no axis of a fixed size takes, claims by data_parallel left out: what is there to be shared out
  int64_t rest_ranks = 1;
  std::string taken_ranks = {};  // "tp 2 x pp 2": the axes that take the others, for messages; empty: none
  // product of the other plugins' axes that join the gradient reduction (parts of one sequence)
  int64_t joined_ranks = 1;
  // of the model's parameters on the fullest rank, before a data_parallel plugin shares them out
  double rank_share = 1;
  int64_t rank_layers = 0;     // blocks on the fullest rank; 0 while not known
  int64_t rank_positions = 0;  // of a sequence that a rank has between layers, after all cuts; 0 while not known
  int64_t micro_batches_in_flight = 1;  // whose activations a rank holds at most
};

// What a rank's memory is for: parameters as units compute with them; gradients; float32 masters and moments;
// buffers that come and go; what forward passes leave for their backward.
enum class MemoryClass { parameters, gradients, optimizer, buffers, activations };

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

  struct Claim {
    std::string axis;
    int64_t size;  // kRest: all that no other claim takes
    bool joins_gradients;
    int place;  // order in the mesh, fastest first, see Place
    std::string by;
  };
  struct Need {
    std::string ability, why, by;
  };

  const ModelFacts& model() const { return model_; }
  const RunFacts& run() const { return run_; }

  // Asks for an axis of the mesh.
  void claim_axis(const std::string& axis, int64_t size, bool joins_gradients, int place);
  // "attention.returns_lse": matched by equal text.
  void offer(const std::string& ability);
  void need(const std::string& ability, const std::string& why);
  // Says why this plugin cannot do the run, and what to do: "dropout 0.1 is not supported (0 only);
  // use attention/standard".
  void refuse(const std::string& problem);
  // Expensive but legal: shown by --plan and once at the start.
  void cost(const std::string& line);
  // Whole steps with this plugin may be recorded as a CUDA graph and replayed:
  // its hooks only enqueue work, they neither read the device, nor decide by its values, nor count steps.
  void capturable();
  // A key that changes nothing in this run, and why; shown once at the start.
  void no_effect(const std::string& key, const std::string& why);
  // Bytes this plugin will hold on each rank, added up by class of memory and shown beside what was measured.
  void memory(MemoryClass memory_class, const std::string& what, double bytes);
  // Bytes a rank sends in a step along an axis of the mesh, by what they are.
  void traffic(const std::string& axis, const std::string& what, double bytes);
  // How many elements this rank's optimizer updates, by who shares them out: for the plan of its state.
  // Unsaid: all of them.
  void updates(double elements);

  // --- the runtime's side ---
  struct Note {
    std::string by, text;
  };
  struct Memory {
    std::string by, what;
    double bytes;
    MemoryClass memory_class;
  };
  struct Traffic {
    std::string by, axis, what;
    double bytes;
  };
  PlanContext(ModelFacts model, RunFacts run) : model_(std::move(model)), run_(std::move(run)) {}
  void speaker(const std::string& plugin) { speaker_ = plugin; }  // "attention/standard": who makes the next calls
  const std::vector<Claim>& claims() const { return claims_; }
  const std::vector<Note>& offers() const { return offers_; }
  const std::vector<Need>& needs() const { return needs_; }
  const std::vector<Note>& refusals() const { return refusals_; }
  const std::vector<Note>& costs() const { return costs_; }
  const std::vector<Note>& no_effects() const { return no_effects_; }
  const std::vector<Memory>& memories() const { return memories_; }
  const std::vector<Traffic>& traffics() const { return traffics_; }
  double updated_elements() const {
    return updated_.value_or(static_cast<double>(model_.parameters) * run_.rank_share);
  }
  const std::vector<std::string>& capturables() const { return capturables_; }  // who said so

 private:
  ModelFacts model_;
  RunFacts run_;
  std::string speaker_;
  std::vector<Claim> claims_;
  std::vector<Note> offers_, refusals_, costs_, no_effects_;
  std::vector<Need> needs_;
  std::vector<Memory> memories_;
  std::vector<Traffic> traffics_;
  std::optional<double> updated_;
  std::vector<std::string> capturables_;
};

}  // namespace drivetrain
