// Source: pytorch torch/distributed/checkpoint/state_dict.py, torchtitan components/checkpoint.py, accelerate
// utils/fsdp_utils.py.
#include "keys.h"

#include <algorithm>

namespace drivetrain::dcp {
namespace {

using enum KeyUse;

constexpr KeyRow kKeys[] = {
    {kInFront, "app|model|module|state_dict", honoured, "left out in front of a weight's name"},
    {kInFront, "optimizer|optim|optimizers", honoured, "what is below it is an optimizer's"},
    {kOfOptimizer, "state", honoured, "`state`, a weight's name, a moment; torchtitan has them as one word with dots"},
    {kOfOptimizer, "param_groups", no_effect, "rates, decay and groups are those of CONFIG"},
    {kFirstWord, "train_state", honoured, "torchtitan's: its step"},
    {kFirstWord, "lr_scheduler|scheduler", no_effect, "the rate is that of CONFIG's schedule at this step"},
    {kFirstWord, "dataloader", no_effect, "data go on with the row after the last step's"},
    {kFirstWord, "rng_state", no_effect, "random numbers follow from the seed and the step"},
    {kLastWord, "step|iteration", honoured, "the step; of an optimizer's state: its updates"},
    {kInName, "_fsdp_wrapped_module|_orig_mod|_checkpoint_wrapped_module", honoured, "left out: words of wrappers"},
};

const KeyRow* row(const char* of, const std::string& word) { return find_key(kKeys, of, word); }

// A word in front of weights, which is none of an optimizer.
bool is_outer(const std::string& word) { return row(kInFront, word) == &kKeys[0]; }

std::string without_wrappers(std::string name) {
  for (const KeyRow& one : kKeys) {
    if (one.of != std::string(kInName)) continue;
    for (const std::string& word : spellings(one.names))
      for (size_t at; (at = name.find(word + ".")) != std::string::npos;) name.erase(at, word.size() + 1);
  }
  return name;
}

// "state.layers.0.attention.wq.weight.exp_avg" is one word in torchtitan's files.
bool is_flat_state(const std::string& word) { return word.starts_with("state."); }

}  // namespace

std::span<const KeyRow> keys() { return kKeys; }

bool is_of_optimizer(const std::vector<std::string>& path) {
  for (const std::string& word : path) {
    if (row(kOfOptimizer, word)) return false;
    if (row(kInFront, word) && !is_outer(word)) return true;
  }
  return false;
}

bool is_step(const std::vector<std::string>& path) {
  if (path.empty()) return false;
  std::string last = path.back();
  if (path.size() > 1 && is_flat_state(last)) last = last.substr(last.rfind('.') + 1);
  return row(kLastWord, last) != nullptr;
}

bool has_no_effect(const std::vector<std::string>& path) {
  if (path.empty()) return false;
  const KeyRow* found = row(kFirstWord, path.front());
  if (is_of_optimizer(path))
    for (const std::string& word : path)
      if (const KeyRow* const of = row(kOfOptimizer, word.substr(0, word.find('.')))) found = of;
  return found && found->use == no_effect;
}

std::string name_of_path(const std::vector<std::string>& path) {
  if (is_of_optimizer(path)) {
    const auto state = std::find(path.begin(), path.end(), "state");
    if (state != path.end()) {
      if (path.end() - state < 3 || is_step(path)) return {};
      return "optimizer/" + without_wrappers(*(state + 1)) + "." + path.back();
    }
    const std::string& last = path.back();
    if (path.size() < 2 || !is_flat_state(last) || last.rfind('.') <= 6 || is_step(path)) return {};
    return "optimizer/" + without_wrappers(last.substr(6));
  }
  if (path.empty() || row(kFirstWord, path.front())) return {};
  size_t first = 0;
  while (first + 1 < path.size() && is_outer(path[first])) ++first;
  if (row(kLastWord, path[first])) return {};
  std::string name = "model/";
  for (size_t i = first; i < path.size(); ++i) name += (i > first ? "." : "") + path[i];
  return without_wrappers(name);
}

}  // namespace drivetrain::dcp
