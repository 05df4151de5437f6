// Which Hugging Face tensors a parameter of ours holds, and which of them get adapters or are trained whole. Made once,
// in Strategy::build.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/weight_rules.h>

#include "options.h"

namespace drivetrain::lora {

// A module of the model as Hugging Face cuts it: the rows [first, first + rows) of one of our weights.
struct Module {
  std::string path;  // "model.layers.0.self_attn.q_proj"
  int64_t first = 0, rows = 0;
  bool shared = false;      // its tensor holds rows of other parameters, too
  bool transposed = false;  // Hugging Face keeps it as [in, out]
};

// One adapter, as the options want it.
struct Wish {
  Module module;
  int64_t rank = 0;
  double alpha = 0, scale = 0;
};

class Targets {
 public:
  // `rules`: of the format "hf". Without any, each of our layers is a module under its own name.
  Targets(const Options& options, const WeightRules& rules);

  // The modules of the linear layer `layer`, [out, in], that get adapters; in the order of their rows.
  std::vector<Wish> of_linear(const std::string& layer, int64_t out, int64_t in);
  // Whether the parameter is trained whole.
  bool trained_whole(const std::string& param);
  // After all layers were asked for: a target that no linear layer answered to, and words that choose nothing.
  void check_all_found();
  // What is wrong with the options for this model, so far, with the keys as users write them.
  const std::vector<std::string>& problems() const { return problems_; }
  void add_problem(const std::string& text);

  // The rules of parameters that are trained whole, under the names of the adapter's file.
  std::vector<WeightRule> whole_rules();
  // target_modules of the adapter's file: names, or a regular expression.
  Value written_targets() const;

 private:
  bool wanted(const std::string& path) const;
  std::vector<Module> modules_of(const std::string& layer, int64_t out) const;
  void choose_default();
  void check_names_match();
  void check_words_choose();

  Options options_;
  const WeightRules rules_;
  std::map<std::string, const WeightRule*> by_param_;
  std::vector<std::string> paths_;  // of all modules with a matrix
  bool all_linear_ = false;
  std::map<std::string, std::set<std::string>> found_;  // target -> paths of linear layers
  std::vector<std::string> adapted_, problems_;
  std::set<std::string> told_;  // what is wrong alike in every layer
};

// The path of the module that holds this tensor: its name without ".weight" or ".bias".
std::string module_path(const WeightRules& rules, const WeightPart& part);

}  // namespace drivetrain::lora
