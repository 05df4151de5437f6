// Draws the cases and writes them down.
#include "composition/random_case.h"

#include <ATen/ops/empty.h>

#include <filesystem>

#include <drivetrain/safetensors.h>

#include "support/write_safetensors.h"

namespace drivetrain::test {
namespace {

PlainShape draw_shape(Dice& dice) {
  PlainShape s;
  s.gpt2 = dice.chance(0.4);
  s.layers = dice.between(1, 3);
  s.ffn = 2 * dice.between(5, 30) + 1;
  s.vocab = 2 * dice.between(5, 60) + 1;
  s.norm_epsilon = dice.one_of({1e-5, 1e-6, 1e-3});
  if (s.gpt2) {
    s.heads = s.groups = dice.between(1, 4);
    s.head_size = dice.between(4, 16);
    s.hidden = s.heads * s.head_size;
    s.tied = dice.chance(0.8);
    return s;
  }
  s.groups = dice.between(1, 3);
  s.heads = s.groups * dice.between(1, 3);
  s.head_size = 2 * dice.between(2, 8);
  s.hidden = 2 * dice.between(5, 20) + 1;  // a head size of its own lets the width be odd
  s.tied = dice.chance(0.5);
  s.qkv_bias = dice.chance(0.5);
  s.rotary_base = dice.one_of({10000.0, 500.0});
  return s;
}

at::Tensor ids(std::vector<int64_t> shape) { return at::empty(shape, at::TensorOptions(at::kLong)); }

// A random share of each row does not count; in some steps a whole row, and by that a whole rank, does not.
void mask_labels(Case& c, Dice& dice) {
  for (int64_t k = 0; k < c.steps; ++k) {
    const int64_t silent = dice.chance(0.5) ? dice.between(1, c.rows - 1) : -1;
    for (int64_t g = 0; g < c.rows; ++g) {
      int64_t* row = c.labels_KGS.mutable_data_ptr<int64_t>() + (k * c.rows + g) * c.sequence;
      const double share = g == silent ? 1 : dice.real(0, 0.7);
      for (int64_t s = g == 0 ? 1 : 0; s < c.sequence; ++s)  // row 0 keeps a label, so that every step has one
        if (dice.chance(share)) row[s] = -100;
    }
  }
}

void draw_data(Case& c, Dice& dice) {
  c.sequence = 2 * dice.between(1, 9) + 1;
  c.shape.positions = c.sequence + dice.between(0, 5);
  c.tokens_KGS = ids({c.steps, c.rows, c.sequence + 1});
  int64_t* token = c.tokens_KGS.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < c.tokens_KGS.numel(); ++i) token[i] = dice.between(0, c.shape.vocab - 1);
  c.labels_KGS = c.tokens_KGS.narrow(2, 1, c.sequence).clone();
  c.labels_in_file = dice.chance(0.75);
  if (c.labels_in_file) mask_labels(c, dice);
}

int64_t draw_divisor(int64_t n, Dice& dice) {
  int64_t d = dice.between(1, n);
  while (n % d != 0) --d;
  return d;
}

// Four ranks fix the global batch; fewer ranks cut the same rows in another way, or into the same micro-batches.
void draw_batch(Case& c, Dice& dice) {
  const int64_t micro = dice.one_of<int64_t>({1, 1, 3}), accumulation = dice.between(1, 3);
  c.rows = 4 * micro * accumulation;
  c.same_micro_batches = dice.chance(0.4);
  c.accumulation[4] = accumulation;
  for (const int ranks : {1, 2})
    c.accumulation[ranks] = c.same_micro_batches ? 4 / ranks * accumulation : draw_divisor(c.rows / ranks, dice);
  c.file_micro_batches = draw_divisor(c.rows, dice);
}

void draw_optimizer(Case& c, Dice& dice) {
  c.lr = dice.one_of({1e-3, 2e-3, 3e-3});
  c.beta1 = dice.one_of({0.9, 0.8});
  c.beta2 = dice.one_of({0.999, 0.95});
  c.eps = dice.one_of({1e-8, 1e-6});
  c.weight_decay = dice.one_of({0.0, 0.1, 0.5});
  c.decay_all = dice.chance(0.5);
  c.clip = dice.one_of({0.0, 0.2, 1.0});
  c.schedule.type = dice.one_of<const char*>({"", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"});
  c.schedule.warmup_type = dice.one_of<const char*>({"linear", "log"});
  c.schedule.low = c.schedule.type == "WarmupCosineLR" ? 0.1 : c.lr / 4;
}

Value section(const char* type, Value params) { return Value::Object{{"type", type}, {"params", std::move(params)}}; }

Value schedule_section(const Case& c) {
  const CaseSchedule& s = c.schedule;
  Value params = Value::Object{{"warmup_num_steps", s.warmup}, {"warmup_type", s.warmup_type}};
  if (s.type == "WarmupCosineLR") {
    params.set("warmup_min_ratio", s.low), params.set("cos_min_ratio", s.low);
  } else {
    params.set("warmup_min_lr", s.low), params.set("warmup_max_lr", c.lr);
  }
  if (s.type != "WarmupLR") params.set("total_num_steps", s.total);
  return section(s.type.c_str(), params);
}

Value model_params(const Case& c) {
  const PlainShape& s = c.shape;
  Value p = Value::Object{{"num_layers", s.layers},
                          {"hidden_size", s.hidden},
                          {"num_attention_heads", s.heads},
                          {"ffn_hidden_size", s.ffn},
                          {"vocab_size", s.vocab},
                          {"max_position_embeddings", s.positions},
                          {"norm_epsilon", s.norm_epsilon},
                          {"init_method_std", c.init_std},
                          {"untie_embeddings_and_output_weights", !s.tied}};
  if (s.gpt2) return p;
  p.set("num_query_groups", s.groups), p.set("kv_channels", s.head_size);
  p.set("normalization", "rmsnorm"), p.set("position_embedding_type", "rope"), p.set("activation", "swiglu");
  p.set("rotary_base", s.rotary_base), p.set("add_bias", false), p.set("add_qkv_bias", s.qkv_bias);
  return p;
}

}  // namespace

Case draw_case(int index) {
  Dice dice(0x5eed0000u + static_cast<unsigned>(index));
  Case c;
  c.index = index;
  c.shape = draw_shape(dice);
  c.init_std = dice.real(0.12, 0.28);  // large enough that attention is far from uniform
  c.from_folder = index % 2 == 1;
  draw_batch(c, dice);
  draw_data(c, dice);
  draw_optimizer(c, dice);
  return c;
}

void write_batches(const Case& c, const std::string& path) {
  const int64_t M = c.file_micro_batches, B = c.rows / M;
  const std::vector<int64_t> tokens = {c.steps, M, B, c.sequence + 1}, labels = {c.steps, M, B, c.sequence};
  std::vector<SafetensorsItem> items = {{"tokens", at::kLong, tokens}};
  if (c.labels_in_file) items.push_back({"labels", at::kLong, labels});
  write_safetensors(path, items, {}, [&](const std::string& name) {
    return name == "tokens" ? c.tokens_KGS.view(tokens) : c.labels_KGS.view(labels);
  });
}

void write_moved_folder(const Case& c, const std::string& folder, const std::string& moved_folder) {
  const SafetensorsFile file = SafetensorsFile::open(folder + "/model.safetensors");
  std::vector<SafetensorsItem> items;
  for (const std::string& name : file.names()) items.push_back({name, file.dtype(name), file.shape(name)});
  Dice dice(0xf01de500u + static_cast<unsigned>(c.index));
  std::filesystem::create_directory(moved_folder);
  std::filesystem::copy_file(folder + "/config.json", moved_folder + "/config.json");
  write_safetensors(moved_folder + "/model.safetensors", items, {{"format", "pt"}}, [&](const std::string& name) {
    at::Tensor x = file.tensor(name);
    float* data = x.mutable_data_ptr<float>();
    for (int64_t i = 0; x.dim() == 1 && i < x.numel(); ++i) data[i] += static_cast<float>(dice.real(-0.4, 0.4));
    return x;
  });
}

Value train_config(const Case& c, int ranks, const std::string& attention, const std::string& batches,
                   const std::string& start) {
  Value config = Value::Object{{"train_steps", c.steps}, {"seed", 100 + c.index}, {"gradient_clipping", c.clip}};
  config.set("train_batch_size", c.rows);
  config.set("gradient_accumulation_steps", c.accumulation.at(ranks));
  config.set("model", section("gpt", start.empty() ? model_params(c) : Value(Value::Object{{"from", start}})));
  config.set("dataset", section("token_batches", Value::Object{{"file", batches}}));
  config.set("optimizer", section("AdamW", Value::Object{{"lr", c.lr},
                                                         {"betas", Value::Array{c.beta1, c.beta2}},
                                                         {"eps", c.eps},
                                                         {"weight_decay", c.weight_decay},
                                                         {"decay", c.decay_all ? "all" : "matrices"}}));
  if (!c.schedule.type.empty()) config.set("scheduler", schedule_section(c));
  config.set("attention", attention);
  return config;
}

Value initial_config(const Case& c, int ranks, const std::string& batches) {
  Value config = train_config(c, ranks, "standard", batches, "");
  config.set("train_steps", 1);
  config.set("optimizer", section("AdamW", Value::Object{{"lr", 0.0}, {"weight_decay", 0.0}}));
  config.erase("scheduler");
  return config;
}

}  // namespace drivetrain::test
