#include "matrix/curve.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/roll.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <sstream>

#include <drivetrain/safetensors.h>

#include <drivetrain/testkit/kit/temp_folder.h>

#include "support/write_safetensors.h"

namespace drivetrain::test {
namespace {

constexpr double kFactor = 8, kLossFloor = 16 * 4.8e-7, kNormFloor = 2e-6, kWeightFloor = 2e-6;

const TempFolder& folder() {
  static const TempFolder folder;
  return folder;
}

at::Tensor ids(const std::vector<int64_t>& shape) { return at::empty(shape, at::TensorOptions(at::kLong)); }

// Tokens that can be learned: the next one is three times the last plus 0, 1 or 2.
at::Tensor make_tokens() {
  std::mt19937_64 dice(20);
  const at::Tensor tokens = ids({kSteps, 1, kRows, kSequence + 1});
  int64_t* token = tokens.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < tokens.numel(); ++i)
    token[i] = i % (kSequence + 1) == 0 ? int64_t(dice() % kVocabulary)
                                        : (3 * token[i - 1] + int64_t(dice() % 3)) % kVocabulary;
  return tokens;
}

// Row g keeps about (g + 1) / G of its labels. Row 3 of every other step has none: with four ranks' rows, a whole
// micro-batch of one rank. The first half of row 5 has none: a whole slice of the sequence. One step has none at all.
at::Tensor make_labels(const at::Tensor& tokens) {
  std::mt19937_64 dice(21);
  const at::Tensor labels = tokens.narrow(3, 1, kSequence).clone(at::MemoryFormat::Contiguous);
  int64_t* label = labels.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < labels.numel(); ++i) {
    const int64_t s = i % kSequence, g = i / kSequence % kRows, k = i / kSequence / kRows;
    const bool silent = (g == 3 && k % 2 == 1) || (g == 5 && s < kSequence / 2) || k + 1 == kStepWithoutLabels;
    if (silent || int64_t(dice() % kRows) > g) label[i] = -100;
  }
  return labels;
}

// `first`: the row that comes first in every step, before those that follow it and those in front of it.
std::string batches_file(int64_t first = 0) {
  static std::map<int64_t, std::string> made;
  const auto [path, fresh] = made.try_emplace(first, folder().path(concat("batches", first, ".safetensors")));
  if (fresh) {
    const at::Tensor all_tokens = make_tokens(), tokens = at::roll(all_tokens, -first, 2),
                     labels = at::roll(make_labels(all_tokens), -first, 2);
    const std::string& file = path->second;
    write_safetensors(file, {{"tokens", at::kLong, tokens.sizes().vec()}, {"labels", at::kLong, labels.sizes().vec()}},
                      {}, [&](const std::string& name) { return name == "tokens" ? tokens : labels; });
  }
  return path->second;
}
Value dataset_from(const std::string& file) {
  return Value::Object{{"type", "token_batches"}, {"params", Value::Object{{"file", file}}}};
}

constexpr double kInfinite = std::numeric_limits<double>::infinity();

double distance(double a, double b) { return std::isnan(a - b) ? kInfinite : std::abs(a - b); }
double relative(double a, double b) { return distance(a, b) / std::abs(b); }
double distance(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return kInfinite;
  return distance((a - b).abs().max().item<double>(), 0);
}
double distance(const Curve& a, const Curve& b) {
  double largest = a.weights.size() == b.weights.size() ? 0 : kInfinite;
  for (const auto& [name, x] : a.weights)
    largest = std::max(largest, b.weights.contains(name) ? distance(x, b.weights.at(name)) : kInfinite);
  return largest;
}

// Losses of the model are means over a micro-batch: its rows then are part of what is computed, and not of the order of
// sums.
bool has_rows_of_its_own(const Value& config) { return config.find("train_micro_batch_size_per_gpu") != nullptr; }

// The ways in which one process may add the same things up: in more or fewer micro-batches, or the rows in other
// orders.
std::vector<Value> orders(const Value& plain) {
  const Value* dropout = plain.find("model")->find("params")->find("attention_dropout");
  const bool any_attention = !dropout || dropout->as_double() == 0;  // one of the two kernels has none
  std::vector<Value> list;
  for (const auto& [micro_batches, attention, fused] :
       std::vector<std::tuple<int, const char*, bool>>{{1, "standard", false},
                                                       {2, "flash", true},
                                                       {6, "standard", true},
                                                       {12, "flash", false},
                                                       {3, "flash", true}}) {
    Value config = plain;
    if (has_rows_of_its_own(plain))
      config.set("dataset", dataset_from(batches_file(micro_batches % kRows)));
    else
      config.set("gradient_accumulation_steps", micro_batches);
    config.set("attention", any_attention ? attention : "standard");
    if (fused) config.erase("fused_block");  // it is the default
    list.push_back(config);
  }
  return list;
}

void raise(Deviation& d, double& largest, double found, double tolerance, const std::string& what) {
  largest = std::max(largest, found);
  if (found > tolerance) d.outside += concat("\n   ", what, ": ", found, ", tolerance ", tolerance);
  if (found / tolerance > d.tolerances || d.where.empty()) d.tolerances = found / tolerance, d.where = what;
}

}  // namespace

Value base_config() {
  Value config = parse_json(R"({
    "seed": 11, "monitors": "jsonl", "gradient_clipping": 0.5,
    "communicator": {"type": "local", "params": {"timeout_s": 60}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "eps": 1e-4, "weight_decay": 0.1}}})",
                            "matrix");
  config.set("train_steps", kSteps);
  config.set("train_batch_size", kRows);
  config.set("gradient_accumulation_steps", kMicroBatches);
  config.set("dataset", dataset_from(batches_file()));
  return config;
}

Curve read_curve(const std::string& run_folder) {
  Curve curve;
  for (const Value& line : read_metrics_file(run_folder)) {
    for (const auto& [name, list] : {std::pair{"loss", &curve.losses}, {"grad_norm", &curve.norms}})
      list->push_back(line.find(name)->is_null() ? -1 : line.find(name)->as_double());
    for (const Value::Member& figure : line.members())
      if (figure.key.starts_with("loss_terms.") && !figure.value.is_null())
        curve.terms[figure.key.substr(11)].push_back(figure.value.as_double());
    curve.tokens.push_back(line.find("tokens")->as_int());
  }
  if (const std::string weights = run_folder + "/final/model.safetensors"; std::filesystem::exists(weights)) {
    const SafetensorsFile file = SafetensorsFile::open(weights);
    for (const std::string& name : file.names()) curve.weights[name] = file.tensor(name).clone();
  }
  const Value resolved = read_json_file(run_folder + "/resolved.json");
  for (const Value::Member& plugin : resolved.find("_resolved")->find("plugins")->members())
    curve.plugins.insert(plugin.key);
  return curve;
}

std::string missing_plugin(const Cell& cell, const Curve& curve) {
  for (int f = 0; f < kFactors; ++f) {
    std::istringstream names(value_of(cell, FactorIndex(f)).plugins);
    for (std::string name; names >> name;)
      if (!curve.plugins.contains(name)) return name;
  }
  return {};
}

Curve run_curve(Value config, int ranks, const Registry& registry) {
  static int runs = 0;
  const std::string path = folder().path(concat("run", runs++));
  config.set("output_dir", path);
  run_threads(config, ranks, registry);
  const Curve curve = read_curve(path);
  std::filesystem::remove_all(path);
  return curve;
}

// The spread of several runs, largest distance of any two up to a step.
Tolerance tolerance_of(const std::vector<Curve>& runs) {
  Tolerance t = {std::vector<double>(kSteps, kLossFloor), std::vector<double>(kSteps, kNormFloor), kWeightFloor,
                 kNormFloor};
  for (const Curve& a : runs)
    for (const Curve& b : runs) {
      for (size_t k = 0; k < kSteps; ++k) {
        t.loss[k] = std::max(t.loss[k], kFactor * distance(a.losses.at(k), b.losses.at(k)));
        t.norm[k] = std::max(t.norm[k], kFactor * relative(a.norms.at(k), b.norms.at(k)));
      }
      t.weight = std::max(t.weight, kFactor * distance(a, b));
      for (const auto& [name, values] : a.terms)
        for (size_t i = 0; i < values.size(); ++i)
          t.term = std::max(t.term, kFactor * relative(values[i], b.terms.at(name).at(i)));
    }
  for (size_t k = 1; k < kSteps; ++k) {
    t.loss[k] = std::max(t.loss[k], t.loss[k - 1]);
    t.norm[k] = std::max(t.norm[k], t.norm[k - 1]);
  }
  return t;
}

const Reference& reference_of(const Value& config) {
  static std::map<std::string, Reference> made;
  Value plain = base_config();
  for (const char* key : {"model", "optimizer", "seed"}) plain.set(key, *config.find(key));
  if (has_rows_of_its_own(config))
    for (const char* key : {"train_micro_batch_size_per_gpu", "gradient_accumulation_steps"})
      plain.set(key, *config.find(key));
  if (const Value* adapters = config.find("lora")) plain.set("lora", *adapters);
  const auto [entry, fresh] = made.try_emplace(plain.to_json());
  if (!fresh) return entry->second;
  plain.set("attention", "standard");
  plain.set("fused_block", false);
  std::vector<Curve> runs = {run_curve(plain, 1)};
  for (const Value& order : orders(plain)) runs.push_back(run_curve(order, 1));
  entry->second = {runs.front(), tolerance_of(runs)};
  return entry->second;
}

Deviation deviation(const Curve& found, const Reference& reference) {
  const auto& [curve, tolerance] = reference;
  Deviation d;
  if (found.tokens != curve.tokens) raise(d, d.loss, kInfinite, 1, "numbers of tokens that count");
  if (found.losses.size() != kSteps) return raise(d, d.loss, kInfinite, 1, "number of steps"), d;
  for (size_t k = 0; k < kSteps; ++k) {
    const std::string step = concat(" of step ", k + 1);
    raise(d, d.loss, distance(found.losses[k], curve.losses[k]), tolerance.loss[k], "loss" + step);
    raise(d, d.norm, relative(found.norms[k], curve.norms[k]), tolerance.norm[k], "norm" + step);
  }
  if (found.terms.size() != curve.terms.size()) raise(d, d.term, kInfinite, 1, "number of losses beside");
  for (const auto& [name, values] : curve.terms) {
    const auto ours = found.terms.find(name);
    for (size_t i = 0; i < values.size(); ++i)
      raise(d, d.term,
            ours == found.terms.end() || ours->second.size() != values.size() ? kInfinite
                                                                              : relative(ours->second[i], values[i]),
            tolerance.term, concat(name, " of step ", i + 1));
  }
  for (const auto& [name, value] : curve.weights) {
    const auto ours = found.weights.find(name);
    raise(d, d.weight, ours == found.weights.end() ? kInfinite : distance(ours->second, value), tolerance.weight, name);
  }
  if (found.weights.size() != curve.weights.size()) raise(d, d.weight, kInfinite, 1, "number of weights");
  return d;
}

}  // namespace drivetrain::test
