// What every attention must do, against the formula. To add a case, add a line to `attention_cases` in suite.cpp; it
// runs in every dtype the plugin declares, or must be refused if not declared.
#pragma once

#include <string>

#include <drivetrain/testkit/attention/reference.h>
#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

// sum(out * dout) along a random direction of q, k and v, by central differences in float64.
void check_gradient_by_differences(const Attention& attention, AttentionArgs args);

Suite attention_suite();
// On an attention that a test made. `name`: "attention/standard", which its refusals begin with.
void run_attention_suite(const Attention& attention, const std::string& name);

}  // namespace drivetrain::test
