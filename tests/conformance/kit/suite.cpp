#include <drivetrain/testkit/kit/suite.h>

#include <gtest/gtest.h>

#include <map>

#include <drivetrain/testkit/attention/suite.h>
#include <drivetrain/testkit/checkpoint_format/suite.h>
#include <drivetrain/testkit/checkpoint_policy/suite.h>
#include <drivetrain/testkit/checkpoint_store/suite.h>
#include <drivetrain/testkit/communicator/suite.h>
#include <drivetrain/testkit/context_parallel/suite.h>
#include <drivetrain/testkit/data_parallel/suite.h>
#include <drivetrain/testkit/dataset/suite.h>
#include <drivetrain/testkit/evaluation/suite.h>
#include <drivetrain/testkit/expert_parallel/suite.h>
#include <drivetrain/testkit/lr_schedule/suite.h>
#include <drivetrain/testkit/model/suite.h>
#include <drivetrain/testkit/monitor/suite.h>
#include <drivetrain/testkit/optimizer/suite.h>
#include <drivetrain/testkit/precision/suite.h>
#include <drivetrain/testkit/recompute/suite.h>
#include <drivetrain/testkit/schedule/suite.h>
#include <drivetrain/testkit/strategy/suite.h>
#include <drivetrain/testkit/tensor_parallel/suite.h>
#include <drivetrain/testkit/tokenizer/suite.h>

namespace drivetrain::test {
namespace {

using Maker = Suite (*)();
const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> list = {
      {"attention", attention_suite},
      {"checkpoint_format", checkpoint_format_suite},
      {"checkpoint_policy", checkpoint_policy_suite},
      {"checkpoint_store", checkpoint_store_suite},
      {"communicator", communicator_suite},
      {"context_parallel", context_parallel_suite},
      {"data_parallel", data_parallel_suite},
      {"dataset", dataset_suite},
      {"evaluation", evaluation_suite},
      {"expert_parallel", expert_parallel_suite},
      {"lr_schedule", lr_schedule_suite},
      {"model", model_suite},
      {"monitor", monitor_suite},
      {"optimizer", optimizer_suite},
      {"precision", precision_suite},
      {"recompute", recompute_suite},
      {"schedule", schedule_suite},
      {"strategy", fused_block_suite},
      {"tensor_parallel", tensor_parallel_suite},
      {"tokenizer", tokenizer_suite},
  };
  return list;
}

}  // namespace

Suite suite_of(const std::string& kind) {
  const auto found = makers().find(kind);
  return found == makers().end() ? Suite{} : found->second();
}

std::vector<std::string> kinds_with_a_suite() {
  std::vector<std::string> kinds;
  for (const auto& [kind, maker] : makers()) kinds.push_back(kind);
  return kinds;
}

void run_suite(const Subject& subject) {
  const Suite suite = suite_of(subject.kind);
  ASSERT_FALSE(suite.empty()) << "there is no suite for the kind " << subject.kind;
  for (const SuiteCase& c : suite) {
    SCOPED_TRACE(subject.text() + ", " + c.name);
    try {
      c.run(subject);
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

}  // namespace drivetrain::test
