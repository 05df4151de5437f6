// A whole run that stops and goes on, for suites of plugins that act around the model: what a plugin keeps from step to
// step and does not show to `state` is lost in between, and the run has other numbers.
#pragma once

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

// Trains a small model with these sections (an object) on this number of ranks, and a second time from the checkpoint
// in the middle: figures and all files of the final folder have to be equal to the bit. Needs checkpoint_policy/every
// and a store.
void expect_same_bits_after_a_stop(const Value& sections, int ranks, const TrainFunction& train);

// Trains the same model twice, without a stop: figures and all files of the final folder have to be equal to the bit.
void expect_same_bits_twice(const Value& sections, int ranks, const TrainFunction& train);

// The case of that name for a kind whose section has the kind's name. `sized`: the plugin learns the number of ranks by
// its option "size".
SuiteCase state_survives_a_stop(int ranks = 1, bool sized = false);

}  // namespace drivetrain::test
