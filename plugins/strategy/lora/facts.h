// What adapters change in the facts of a model, before there is a model: its parameters, and operations per token.
#pragma once

#include <drivetrain/plan_context.h>

#include "options.h"

namespace drivetrain::lora {

// Parameters: those of adapters, of modules that the facts tell the sizes of (Llama's and GPT-2's; others are not
// counted). Operations: a frozen matrix has no gradient, which is a third of its work; adapters have all three
// products. Never refuses options: that is done once the model is built.
void change_facts(const Options& options, ModelFacts& facts);

}  // namespace drivetrain::lora
