// The keys of PEFT's adapter_config.json that are no options here: which value each has to have, or that it changes
// nothing. One table for the section of a config and for the file that `from` names. Pure functions.
#pragma once

#include <cstddef>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/options.h>

namespace drivetrain::lora {

struct PeftKey {
  const char* key;
  // The one text that it may have. Null, false and what is empty are always taken, and mean that it is left out.
  const char* wanted;
  const char* why;  // of other values, which would change the computation; null: any value changes nothing here
};

inline constexpr PeftKey kPeftKeys[] = {
    {"peft_type", "LORA", "is no adapter of this form"},
    {"bias", "none",
     "is not in this version: biases of the base stay as they are; name whole modules in modules_to_save"},
    {"use_dora", nullptr, "is not in this version: magnitudes of weights (DoRA)"},
    {"lora_bias", nullptr, "is not in this version: biases of adapters"},
    {"target_parameters", nullptr, "is not in this version: adapters of stacked experts"},
    {"trainable_token_indices", nullptr,
     "is not in this version: single rows of the embedding; train it whole with modules_to_save"},
    {"layer_replication", nullptr, "is not in this version: layers that are there several times"},
    {"layers_pattern", nullptr, "is not in this version: layers are counted by the number in their name"},
    {"ensure_weight_tying", nullptr, "is not in this version: modules_to_save that stay tied"},
    {"megatron_config", nullptr, "is not in this version: layers of Megatron-Core"},
    {"alora_invocation_tokens", nullptr, "is not in this version: adapters that begin at a token (aLoRA)"},
    {"arrow_config", nullptr, "is not in this version: adapters that are chosen by the input (Arrow)"},
    {"corda_config", nullptr, "is not in this version: it changes the base weights (CorDA)"},
    {"eva_config", nullptr, "is not in this version: it starts adapters by the data (EVA)"},
    {"kasa_config", nullptr, "is not in this version"},
    {"lora_ga_config", nullptr, "is not in this version"},
    {"monteclora_config", nullptr, "is not in this version"},
    {"velora_config", nullptr, "is not in this version"},
    {"use_bdlora", nullptr, "is not in this version: block-diagonal adapters"},
    {"use_qalora", nullptr, "is not in this version: adapters of groups of inputs (QA-LoRA)"},
    {"auto_mapping", nullptr, nullptr},
    {"fan_in_fan_out", nullptr, nullptr},
    {"inference_mode", nullptr, nullptr},
    {"loftq_config", nullptr, nullptr},
    {"megatron_core", nullptr, nullptr},
    {"peft_version", nullptr, nullptr},
    {"qalora_group_size", nullptr, nullptr},
    {"revision", nullptr, nullptr},
    {"runtime_config", nullptr, nullptr},
    {"task_type", nullptr, nullptr},
};
inline constexpr size_t kPeftKeyCount = std::size(kPeftKeys);

// null, false, and what is empty.
bool says_nothing(const Value& value);
// What is wrong with the value, behind the key's name; empty: nothing.
std::string peft_problem(const PeftKey& key, const Value& value);
// Null: no such key.
const PeftKey* find_peft_key(const std::string& key);
std::string help_of(const PeftKey& key);

// One of them in a config. Error(config), with the place of the value, if it cannot be honoured.
template <size_t I>
struct PeftValue {
  Value value;
};
template <size_t I>
struct PeftMember {
  PeftValue<I> peft;
};
template <class Indices>
struct PeftMembers;
template <size_t... I>
struct PeftMembers<std::index_sequence<I...>> : PeftMember<I>... {
  // Of those that change nothing, the ones that are given.
  std::vector<std::string> without_effect() const {
    std::vector<std::string> keys;
    const auto add = [&](const PeftKey& key, const Value& value) {
      if (!key.why && !says_nothing(value)) keys.emplace_back(key.key);
    };
    (add(kPeftKeys[I], static_cast<const PeftMember<I>&>(*this).peft.value), ...);
    return keys;
  }
  template <class Options>
  static void add_to(TableBuilder<Options>& table) {
    (table.field(kPeftKeys[I].key, static_cast<PeftValue<I> Options::*>(&PeftMember<I>::peft), help_of(kPeftKeys[I])),
     ...);
  }
};
using PeftOptions = PeftMembers<std::make_index_sequence<kPeftKeyCount>>;

}  // namespace drivetrain::lora

namespace drivetrain {

template <size_t I>
struct OptionType<lora::PeftValue<I>> {
  static std::string name() { return "any"; }
  static lora::PeftValue<I> from(const Value& v) {
    const std::string problem = lora::peft_problem(lora::kPeftKeys[I], v);
    if (!problem.empty()) throw Error(ErrorCode::config, problem);
    return {v};
  }
  static Value to(const lora::PeftValue<I>& x) { return x.value; }
};

}  // namespace drivetrain
