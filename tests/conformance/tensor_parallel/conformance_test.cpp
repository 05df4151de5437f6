// The conformance suite of tensor_parallel over every installed implementation.
#include <gtest/gtest.h>

#include <algorithm>

#include <drivetrain/testkit/kit/poisoned_memory.h>
#include <drivetrain/testkit/tensor_parallel/suite.h>
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

PoisonedMemory poisoned;

struct OptionSet {
  const char* name;
  const char* options;
};

// Plugins that are not named here run with their defaults. Vocabularies: padded by much, to a multiple of the ranks, to
// a bit more.
constexpr OptionSet kOptionSets[] = {
    {"megatron", "{}"},
    {"megatron", R"({"make_vocab_size_divisible_by": 1})"},
    {"megatron", R"({"make_vocab_size_divisible_by": 3, "sequence_parallel": true})"},
    {"megatron", R"({"sequence_parallel": true, "keep_gathered": true})"},
};

bool is_named_here(const std::string& name) {
  return std::any_of(std::begin(kOptionSets), std::end(kOptionSets),
                     [&](const OptionSet& set) { return name == set.name; });
}

TEST(TensorParallelConformance, plugins_that_are_not_named_here_pass_with_their_defaults) {
  for (const std::string& name : installed_plugins().names(TensorParallel::kKind))
    if (!is_named_here(name)) run_suite({.kind = TensorParallel::kKind, .name = name, .train = train_by_threads});
}

class TensorParallelOptions : public testing::TestWithParam<OptionSet> {};

TEST_P(TensorParallelOptions, pass) {
  run_suite({.kind = TensorParallel::kKind,
             .name = GetParam().name,
             .options = parse_json(GetParam().options, "test"),
             .train = train_by_threads});
}

INSTANTIATE_TEST_SUITE_P(Conformance, TensorParallelOptions, testing::ValuesIn(kOptionSets),
                         [](const auto& info) { return concat(info.param.name, "_", info.index); });

}  // namespace
}  // namespace drivetrain::test
