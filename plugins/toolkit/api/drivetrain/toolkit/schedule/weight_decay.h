// Which parameters weight decay applies to: the rule that all optimizers share. Thread: any.
//
// "matrices": parameters of two or more dimensions (embeddings, but not biases and norms), as in Megatron and Hugging
// Face. "all": every parameter, as in DeepSpeed if all parameters are in one group.
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

// For Optimizer::groups and group_of. Group 0 has weight decay; group 1, which only "matrices" has, has none.
std::vector<Hyper> decay_groups(const WeightDecay& options, double lr, double momentum);
int decay_group(const WeightDecay& options, const Param& param);
// The text for Optimizer::difference_note.
std::string decay_note(const WeightDecay& options, const std::vector<ParamPtr>& params);

// Adds both options to the table of an options struct that derives from WeightDecay.
template <class Options>
void add_weight_decay(TableBuilder<Options>& t) {
  t.template field<double>("weight_decay", &Options::weight_decay,
                           "how much of a decaying tensor is taken off, times lr")
      .at_least(0)
      .automatic("weight_decay of Hugging Face's Trainer", Value(0.0));
  t.template field<std::string>("decay", &Options::decay,
                                "which tensors decay: those of two or more dimensions, or all as in DeepSpeed")
      .one_of({"matrices", "all"});
}

}  // namespace drivetrain
