// What every way to share out a sequence over ranks must do: attention over the pieces is attention over the whole,
// forward and backward, whatever attention is inside; every position is on one rank; sizes that do not fit are refused.
//
// To add a case, add a line to `context_cases` in suite.cpp: it runs with every number of ranks and every attention, in
// float64 and float32, or must be refused where abilities() of the wrapped attention does not declare it.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/testkit/context_parallel/rank.h>
#include <drivetrain/testkit/kit/suite.h>

#include <drivetrain/toolkit/layers/attend.h>

namespace drivetrain::test {

AttentionArgs context_args(bool causal, int64_t window, double dropout, std::vector<RowRange> head_rows = {});

// What the ranks have together, in the order of the sequence. `lse` only where they return it.
struct ContextOutcome {
  AttentionResult whole;
  bool lse = false;
  std::vector<std::string> errors;  // of each rank
  bool declared = true;             // by the wrapped attention's abilities
};

ContextOutcome run_context(const ContextTrial& trial);
// How far the ranks together are from the whole, relative to what is above 1; infinite for what is no number.
double context_deviation(const ContextTrial& trial, const ContextOutcome& outcome);

// Alone by two and four ranks, with every installed attention.
Suite context_parallel_suite();
// `trial`: parts and attention; the suite chooses the rest.
void run_context_parallel_suite(const ContextTrial& trial);

}  // namespace drivetrain::test
