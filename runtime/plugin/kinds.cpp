#include "plugin/kinds.h"

namespace drivetrain {
namespace {

struct KindRow {
  const char* kind;
  KindRule::Count count;
  const char* summary;
  const char* section = "";  // "": the kind's name
};
constexpr KindRow kKinds[] = {
    {"communicator", KindRule::exactly_one, "collectives between ranks"},
    {"data_parallel", KindRule::at_most_one, "copies or shards of the model over ranks with different data"},
    {"tensor_parallel", KindRule::at_most_one, "single layers split over ranks"},
    {"expert_parallel", KindRule::at_most_one, "experts of a mixture split over ranks with different data"},
    {"context_parallel", KindRule::any_number, "one sequence split over ranks"},
    {"schedule", KindRule::exactly_one, "order of micro-batches, and pipeline stages", "pipeline"},
    {"attention", KindRule::exactly_one, "the two halves of attention"},
    {"recompute", KindRule::at_most_one, "which activations are kept", "activation_checkpointing"},
    {"precision", KindRule::at_most_one, "data types and loss scale"},
    {"optimizer", KindRule::exactly_one, "the update of the parameters"},
    {"lr_schedule", KindRule::exactly_one, "learning rate over the run", "scheduler"},
    {"model", KindRule::exactly_one, "units, parameters and names of the weights"},
    {"dataset", KindRule::exactly_one, "batches of tokens"},
    // A training run only records it.
    {"tokenizer", KindRule::at_most_one, "texts to tokens and back"},
    {"evaluation", KindRule::any_number, "figures of the model on data of their own", "eval"},
    // A run without checkpoints is legal; the policy and the store come together.
    {"checkpoint_store", KindRule::at_most_one, "where checkpoints are kept, and in which form"},
    {"checkpoint_policy", KindRule::any_number, "when a checkpoint is saved, and which are kept"},
    {"checkpoint_format", KindRule::any_number, "checkpoint folders of other programs, read and written"},
    {"monitor", KindRule::any_number, "what happens with the figures of a run", "monitors"},
    {"strategy", KindRule::any_number, "anything else that acts around the model"},
};

// Of which every installed plugin is asked.
constexpr const char* kAskedKind = "checkpoint_format";
// Whose plugins are named sets within one section.
constexpr const char* kNamedKind = "evaluation";

// Whose plugins a config may move, and what they may stand outside of: their hooks find complete values, so that they
// stay inside of what shards these.
constexpr const char* kMovedKind = "strategy";
constexpr const char* kOutsideOf[] = {"recompute", "context_parallel", "tensor_parallel", "expert_parallel",
                                      "precision", "attention",        "strategy"};

const KindRow* find_kind(const std::string& name) {
  for (const KindRow& row : kKinds)
    if (name == row.kind) return &row;
  return nullptr;
}

}  // namespace

const std::vector<KindRule>& kind_rules() {
  static const std::vector<KindRule> rules = [] {
    std::vector<KindRule> list;
    for (const KindRow& row : kKinds) {
      list.push_back({row.kind, row.count, row.section});
      if (list.back().kind == kMovedKind) list.back().outside_of = {std::begin(kOutsideOf), std::end(kOutsideOf)};
    }
    return list;
  }();
  return rules;
}

std::vector<KindRule> chosen_kind_rules() {
  std::vector<KindRule> rules = kind_rules();
  std::erase_if(rules, [](const KindRule& rule) { return rule.kind == kAskedKind || rule.kind == kNamedKind; });
  return rules;
}

const char* kind_summary(const std::string& kind) {
  const KindRow* row = find_kind(kind);
  return row ? row->summary : "";
}

std::string section_of_kind(const std::string& kind) {
  if (kind == kAskedKind) return {};
  for (const KindRule& rule : kind_rules())
    if (rule.kind == kind) return rule.key();
  return kind;
}

bool is_kind(const std::string& name) { return find_kind(name) != nullptr; }

std::string kind_names() {
  std::string text;
  for (const KindRow& row : kKinds) text += std::string(text.empty() ? "" : ", ") + row.kind;
  return text;
}

}  // namespace drivetrain
