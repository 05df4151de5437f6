// Mixtures of experts among the options and in a shape. Errors: config, naming options and values.
#pragma once

#include <drivetrain/options.h>

#include "shape.h"
#include "shape_problems.h"

namespace drivetrain::gpt {

TableBuilder<Options> with_expert_options(TableBuilder<Options> table);

// Options of experts that somebody gave for a model without experts.
void refuse_without_experts(const Options& options);
// Of a shape that is complete otherwise.
void complete_experts(const Options& options, Shape& shape);
void check_experts(const Shape& shape, ShapeProblems& wrong);
// The facts of facts_of; where there are no experts all but num_experts and the list of layers are null.
void add_expert_facts(const Shape& shape, Value& facts);
// What the options say of the run, in place of what the folder says.
void take_balance(const Options& options, ExpertShape& mixture);
// For the plan: how loads are kept equal, and which tokens count.
std::string balance_line(const ExpertShape& mixture);

}  // namespace drivetrain::gpt
