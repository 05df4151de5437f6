// A family of models as data: what its Hugging Face folders call the tensors, what the keys of config.json mean in
// terms of our options, and which options all its models have in common. The families of families.cpp and those that a
// user describes (option "family") have the same form, which the README explains. Value types that do not change once
// they are read; any thread. Errors: config.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/toolkit/files/key_table.h>
#include <drivetrain/value.h>

#include "shape.h"

namespace drivetrain::gpt {

// One key of config.json, in all its spellings ("a|b"; the first is written), or keys that share what is said of them.
struct FamilyKey {
  std::string names, why;
  KeyUse use = KeyUse::honoured;
  std::vector<std::string> sets;  // options that it sets
  std::string reads;              // or who reads it: rope, window, rotary_layers, experts, dtype
  std::optional<Value> absent;    // no value: it has to be there; null: the option's default
  Value null;                     // what null means, where it is not as if absent
  std::vector<std::pair<std::string, std::string>> values;  // words of theirs and ours
  double power = 1;                                         // ours is theirs to this power
  bool negated = false;                                     // true for our false
  bool optional = false;                                    // not written where it says what its absence says
  bool all_spellings = false;                               // those that a file has stay, the others are not removed
  Value::Array only;                                        // of one that is refused: values that ask for nothing
};

// Rows of a parameter in one tensor of theirs; the names are without ".weight", {} is the block's number, a second {}
// that of an expert.
struct FamilyTensor {
  std::string name;
  bool transposed = false;  // stored [in, out]
  bool by_group = false;    // of q, k, v: for each key/value head its queries, its key, its value
};

struct Family {
  std::string model_type, title, architecture, prefix;
  Value options;  // that all of its models have
  std::vector<FamilyKey> keys;
  std::vector<std::pair<std::string, std::vector<FamilyTensor>>> tensors;  // by our layer, "block.{}.attn.qkv"
  std::vector<std::string> ignored;                                        // as WeightRules::ignored

  struct Rope {
    double theta = 10000;
    std::optional<double> percent;       // where a part of a head turns: what absence means
    bool local = false;                  // layers with a window have angles of their own, not stretched
    std::optional<double> local_base;    // none: of the same base
    std::optional<int64_t> original;     // original_max_position_embeddings where a file has none; none: its positions
    std::string theta_key, percent_key;  // older spellings
  };
  struct Window {
    std::optional<int64_t> size;  // what absence means; none: no window
    std::string layers;           // "all", "from max_window_layers", "without rope"; ""
    int64_t pattern = 0;          // or all but every n-th
    bool has_switch = false;      // use_sliding_window
    bool types = false;           // layer_types may say it
  };
  // Of mixtures: which layers are none, by "decoder_sparse_step" and mlp_only_layers, by "first_k_dense_replace", or
  // "": all are mixtures; router_aux_loss_coef where a file has none, which counts with output_router_logits alone.
  struct Experts {
    std::string dense;
    double balance_weight = 0;
  };
  std::optional<Rope> rope;
  std::optional<Window> window;
  std::optional<Experts> experts;
  int64_t no_rope_interval = 0;  // every n-th layer is without rope; 0: none

  const std::vector<FamilyTensor>* find_tensor(const std::string& layer) const;
};
using FamilyPtr = std::shared_ptr<const Family>;

extern const char* const kFamilies;  // JSON, as "family" takes it (families.cpp)
const std::vector<FamilyPtr>& known_families();
FamilyPtr known_family(const std::string& model_type);  // null: there is none
std::string known_names();                              // "gpt2, llama, ..."
// The option "family": a name, or an object; null without one.
FamilyPtr read_family(const Value& option);

// Options that all models of the family have; numbers that follow from the sizes are worked out.
Value family_options(const Family& family, std::optional<int64_t> hidden_size);
// Empty, or what the family cannot say of such a shape: "norm_placement \"after\", qk_norm \"heads\"".
std::string misfit(const Family& family, const Shape& shape);
// The family that can hold this shape, the first of the table. Error(config) naming what is in the way of the nearest.
FamilyPtr family_of(const Shape& shape);

// A value of theirs as the option has it, and back. Null: it stays open.
Value to_ours(const FamilyKey& key, const Value& theirs);
std::optional<Value> to_theirs(const FamilyKey& key, const Value& ours);

}  // namespace drivetrain::gpt
