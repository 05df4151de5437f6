// Which tensors weight decay touches: the one rule that optimizers share. Thread: any.
//
// "matrices": those of two or more dimensions (embeddings included, biases and norms not), as Megatron and Hugging Face
// do; "all": every tensor, as DeepSpeed does when it is given all parameters in one group.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/optimizer.h>
#include <drivetrain/options.h>

namespace drivetrain {

struct WeightDecay {
  double weight_decay = 0;
  std::string decay = "matrices";
};

// One hyperparameter group per kind of tensor: group 0 decays; group 1, with "matrices" only, does not.
std::vector<Hyper> decay_groups(const WeightDecay& options, double lr, double momentum);
int decay_group(const WeightDecay& options, const Param& param);
// For Optimizer::difference_note.
std::string decay_note(const WeightDecay& options, const std::vector<ParamPtr>& params);

// Adds both options to the table of an options struct that derives from WeightDecay.
template <class Options>
void add_weight_decay(TableBuilder<Options>& t) {
  t.template field<double>("weight_decay", &Options::weight_decay,
                           "how much of a decaying tensor is taken off, times lr")
      .at_least(0);
  t.template field<std::string>("decay", &Options::decay,
                                "which tensors decay: those of two or more dimensions, or all as in DeepSpeed")
      .one_of({"matrices", "all"});
}

}  // namespace drivetrain
