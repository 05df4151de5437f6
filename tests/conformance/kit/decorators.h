// A whole run with layers that a further plugin decorates, for suites of kinds that decorate layers or compute with
// them: what that plugin adds must not get lost (layers.h).
#pragma once

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

struct DecoratedRuns {
  Value sections = Value::object();  // what is tested
  Value common = Value::object();    // sections of all runs, those on one process too: another model
  int ranks = 1;
  double share = 2e-3;  // of what the term changes in a figure: so far may the tested run be from one process
  // What is tested may compute another function (adapters, frozen weights): the term then has to change its figures.
  // And it may refuse, as a configuration, to run beside adapters: the term is then no adapter, which is told.
  bool may_be_another_function = false;
};
// Trains a small model with the term of terms.h in every linear layer and embedding: on these ranks with the sections,
// on one without them, and on one without the term. Losses and norms of the first two are equal, those of the third are
// not. Without the library of that plugin the case is left out.
void expect_decorators_compose(const DecoratedRuns& runs, const TrainFunction& train);

// The case of that name for a kind whose section has the kind's name. `sized` as for state_survives_a_stop.
SuiteCase decorators_compose(int ranks = 1, bool sized = false);

}  // namespace drivetrain::test
