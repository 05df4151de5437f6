#include "arguments.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <regex>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>
#include <drivetrain/toolkit/torch_files/pickle_value.h>

namespace drivetrain::megatron {
namespace {

using Kind = PickleNode::Kind;

constexpr int64_t kMostListed = 100000;

bool same(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (!a.is_array() || !b.is_array()) return a == b;
  return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), same);
}

bool asks_for_nothing(const Value& value) {
  return value.is_null() || same(value, false) || same(value, 0) || same(value, "") || same(value, Value::array()) ||
         same(value, Value::object());
}

class Reader {
 public:
  explicit Reader(const TorchFile& file) : file_(file) {
    const PickleNode* const args = file.tree().find(file.root(), "args");
    there_ = args && args->kind != Kind::none;
    if (!there_) return;
    for (const auto& [key, node] : file.tree().pairs(*args, "args"))
      if (key->kind == Kind::text)
        if (const auto value = plain_value(*node)) args_[key->text] = *value;
  }

  SaidOfModel read() {
    if (!there_) {
      made_.notes.push_back(concat(file_.path(), ": has no \"args\", so nothing but shapes can be compared with the ",
                                   "model's options: activation, norms, rotary base and so on"));
      return std::move(made_);
    }
    for (const KeyRow& row : arguments())
      if (row.use == KeyUse::refused) refuse(row);
    sizes();
    positions();
    layers();
    experts();
    tell_unknown();
    return std::move(made_);
  }

 private:
  // Not null; of old and new names the one that is there.
  const Value* find(const char* names) const {
    const Value* found = nullptr;
    std::string first;
    for (const std::string& name : spellings(names)) {
      const auto place = args_.find(name);
      if (place == args_.end() || place->second.is_null()) continue;
      if (found && !same(*found, place->second)) throw contradict(first, name);
      found = &place->second, first = name;
    }
    return found;
  }
  Error contradict(const std::string& a, const std::string& b) const {
    return fail(ErrorCode::checkpoint, file_.path(), ": its args have ", a, " ", args_.at(a).to_json(), " and ", b, " ",
                args_.at(b).to_json(), ", which contradict each other\n   ",
                "load it with the program that saved it and save it again");
  }
  bool is(const char* names, bool value) const {
    const Value* const found = find(names);
    return found && same(*found, value);
  }

  void refuse(const KeyRow& row) const {
    const Value* const found = find(row.names);
    if (!found) return;
    const Value plain = parse_json(row.plain, "the table of arguments");
    for (const Value& one : plain.items())
      if (same(*found, one)) return;
    throw fail(ErrorCode::checkpoint, file_.path(), ": was saved with ", spelling_of(row.names), " ", found->to_json(),
               " (", row.why,
               "), which is not supported\n   convert it to a Hugging Face folder with Megatron's own tools");
  }
  std::string spelling_of(const char* names) const {
    for (const std::string& name : spellings(names))
      if (const auto place = args_.find(name); place != args_.end() && !place->second.is_null()) return name;
    return names;
  }

  void hand_on(const char* names) {
    if (const Value* const found = find(names)) made_.facts.set(spellings(names).front(), *found);
  }
  void sizes() {
    for (const char* const names : {"num_layers|encoder_num_layers", "hidden_size", "ffn_hidden_size",
                                    "num_attention_heads", "kv_channels", "softmax_scale"})
      hand_on(names);
    const Value* groups = find("num_query_groups|num_key_value_heads");
    if (is("group_query_attention", false)) groups = find("num_attention_heads");
    if (groups) made_.facts.set("num_query_groups", *groups);
  }

  void positions() {
    const Value* const type = find("position_embedding_type");
    std::string text = type && type->is_string() ? type->as_string() : "";
    if (is("use_rotary_position_embeddings", true)) text = "rope";
    if (text != "rope" && is("add_position_embedding", false)) text = "none";
    if (text.empty()) return;
    made_.facts.set("position_embedding_type", text);
    if (text != "rope") return;
    hand_on("rotary_base|rotary_position_embeddings_theta");
    // RotaryEmbedding._apply_scaling: no option changes the other numbers.
    Value scaling;
    if (is("use_rope_scaling", true)) {
      const Value* const factor = find("rope_scaling_factor");
      scaling.set("rope_type", "llama3");
      scaling.set("factor", factor && factor->is_number() ? factor->as_double() : 8.0);
      scaling.set("low_freq_factor", 1.0), scaling.set("high_freq_factor", 4.0);
      scaling.set("original_max_position_embeddings", 8192);
    }
    if (find("use_rope_scaling")) made_.facts.set("rope_scaling", scaling);
  }

  void layers() {
    if (const Value* const norm = find("normalization"); norm && norm->is_string()) {
      std::string lower = norm->as_string();
      std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
      made_.facts.set("normalization", lower == "rmsnorm"     ? Value("RMSNorm")
                                       : lower == "layernorm" ? Value("LayerNorm")
                                                              : *norm);
    }
    for (const char* const name : {"norm_epsilon|layernorm_epsilon", "qk_layernorm", "add_bias_linear", "add_qkv_bias",
                                   "untie_embeddings_and_output_weights"})
      hand_on(name);
    if (const Value* const no_bias = find("disable_bias_linear"); no_bias && no_bias->is_bool()) {
      if (is("add_bias_linear", no_bias->as_bool())) throw contradict("add_bias_linear", "disable_bias_linear");
      made_.facts.set("add_bias_linear", !no_bias->as_bool());
    }
    if (const std::string name = activation(); !name.empty()) made_.facts.set("activation", name);
  }

  // Megatron's defaults where it says nothing.
  void experts() {
    const Value* const count = find("num_experts|num_moe_experts");
    if (!count || same(*count, 0) || same(*count, Value::Array{1})) return;
    made_.facts.set("num_experts", *count);
    const std::pair<const char*, Value> options[] = {{"moe_router_topk", 2},
                                                     {"moe_ffn_hidden_size", value_of("ffn_hidden_size", Value())},
                                                     {"moe_shared_expert_intermediate_size", 0},
                                                     {"moe_shared_expert_gate", false},
                                                     {"moe_router_score_function", "softmax"},
                                                     {"moe_router_pre_softmax", false},
                                                     {"moe_router_topk_scaling_factor", 1},
                                                     {"moe_router_num_groups", 1},
                                                     {"moe_router_group_topk", 1}};
    const bool sigmoid = same(value_of("moe_router_score_function", Value()), "sigmoid");
    for (const auto& [name, otherwise] : options)
      if (!sigmoid || name != std::string_view("moe_router_pre_softmax"))
        made_.facts.set(name, value_of(name, otherwise));
    const Value balance = value_of("moe_router_load_balancing_type", Value());
    if (same(balance, "sinkhorn"))
      throw fail(ErrorCode::checkpoint, file_.path(),
                 ": was saved with moe_router_load_balancing_type \"sinkhorn\", by ",
                 "which experts are chosen another way, which is not supported");
    const Value every = value_of("moe_layer_freq", 1), layers = value_of("num_layers|encoder_num_layers", 0);
    made_.facts.set("moe_layer_freq", every);
    if (!every.is_int() || every.as_int() < 1 || !layers.is_int() || layers.as_int() > kMostListed) return;
    Value::Array list;
    for (int64_t i = 0; i < layers.as_int(); ++i) list.emplace_back(i % every.as_int() == 0 ? 1 : 0);
    made_.facts.set("moe_layer_freq", list);
  }
  Value value_of(const char* names, const Value& otherwise) const {
    const Value* const found = find(names);
    return found ? *found : otherwise;
  }

  // Megatron has one GELU by tanh and one by erf, and the fusion of bias and activation chooses.
  std::string activation() const {
    std::string chosen;
    for (const char* const name : {"swiglu", "squared_relu", "quick_geglu"}) {
      if (!is(name, true)) continue;
      if (!chosen.empty()) throw contradict(chosen, name);
      chosen = name;
    }
    if (!chosen.empty()) return chosen;
    if (is("openai_gelu", true)) return "gelu_tanh";
    if (is("onnx_safe", true)) return "gelu";
    if (const Value* const fused = find("bias_gelu_fusion")) return same(*fused, true) ? "gelu_tanh" : "gelu";
    return "";
  }

  void tell_unknown() {
    constexpr size_t kMost = 12;
    std::vector<std::string> unknown;
    for (const auto& [name, value] : args_)
      if (!asks_for_nothing(value) && !is_known(name)) unknown.push_back(concat(name, " ", value.to_json()));
    if (unknown.empty()) return;
    const size_t count = unknown.size();
    unknown.resize(std::min(count, kMost));
    made_.notes.push_back(concat(file_.path(), ": its args have options that are not known here, so what they do to ",
                                 "the model is not compared: ", join(unknown),
                                 count > kMost ? concat(" and ", count - kMost, " more") : ""));
  }
  static bool is_known(const std::string& name) {
    static const std::vector<std::regex> known = [] {
      std::vector<std::regex> list;
      for (const KeyRow& row : arguments()) list.emplace_back(row.names);
      return list;
    }();
    return name.size() < 200 &&
           std::any_of(known.begin(), known.end(), [&](const std::regex& row) { return std::regex_match(name, row); });
  }

  const TorchFile& file_;
  bool there_ = false;
  std::map<std::string, Value> args_;
  SaidOfModel made_;
};

}  // namespace

SaidOfModel said_of_model(const TorchFile& file) { return Reader(file).read(); }

}  // namespace drivetrain::megatron
