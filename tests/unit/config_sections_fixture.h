// Plugins that a test pretends to have installed, and what a config's sections select among them.
#pragma once

#include "config/known_sections.h"
#include "config/sections.h"
#include "config_test_support.h"

namespace drivetrain {
namespace {

const std::vector<KindRule> kKinds = {
    {"communicator", KindRule::exactly_one},
    {"data_parallel", KindRule::at_most_one},
    {"schedule", KindRule::exactly_one, "pipeline"},
    {"attention", KindRule::exactly_one},
    {"precision", KindRule::at_most_one},
    {"recompute", KindRule::at_most_one, "activation_checkpointing"},
    {"optimizer", KindRule::exactly_one},
    {"lr_schedule", KindRule::exactly_one, "scheduler"},
    {"model", KindRule::exactly_one},
    {"monitor", KindRule::any_number, "monitors"},
    {"strategy", KindRule::any_number},
    {"context_parallel", KindRule::any_number},
    {"tensor_parallel", KindRule::at_most_one},
};

SectionForm form(const std::string& json) { return read_section_form(parse_json(json, "manifest")); }

std::vector<KnownPlugin> plugins() {
  return {{"communicator", "local", "", {}, true, "cpu"},
          {"communicator", "nccl", "", {}, true, "cuda"},
          {"data_parallel", "ddp", "", {}, true, ""},
          {"data_parallel",
           "zero",
           "zero_optimization",
           {},
           false,
           "",
           form(R"({"on": {"stage": 1}, "off": {"stage": 0}})")},
          {"schedule", "accumulate", "", {}, true, ""},
          {"attention", "standard", "", {}, true, ""},
          {"attention", "flash", "", {}, false, ""},
          {"optimizer", "adamw", "", {"Adam", "AdamW"}, true, ""},
          {"optimizer", "sgd", "", {}, false, ""},
          {"lr_schedule", "constant", "", {}, true, ""},
          {"lr_schedule", "warmup", "", {"WarmupLR"}, false, ""},
          {"model", "gpt", "", {}, false, ""},
          {"monitor", "console", "", {}, true, ""},
          {"monitor", "jsonl", "", {}, true, ""},
          {"monitor", "csv", "csv_monitor", {}, false, "", form(R"({"off_unless_enabled": true})")},
          {"context_parallel",
           "heads",
           "sequence_parallel_size",
           {},
           false,
           "",
           form(R"({"number": "size", "off": {"size": 1}})")},
          {"context_parallel", "chunks", "", {}, false, ""},
          {"tensor_parallel", "cut", "tensor_parallel", {}, false, "", form(R"({"number": "size"})")},
          {"strategy", "fused", "fused", {}, true, ""},
          {"strategy", "average", "", {}, true, ""}};
}

[[maybe_unused]] std::vector<KnownPlugin> without(const std::string& name) {
  std::vector<KnownPlugin> list = plugins();
  std::erase_if(list, [&](const KnownPlugin& p) { return p.name == name; });
  return list;
}

// `body` without the outer braces, beside the sections every run needs.
Value config_of(const std::string& body) {
  return parse_json("{\"train_steps\": 1, \"train_batch_size\": 4,\n\"model\": \"gpt\",\n" + body + "}", "a.json");
}

std::vector<Selection> select(const std::string& body, const std::vector<KnownPlugin>& installed = plugins()) {
  Problems problems;
  const auto selections = select_plugins(config_of(body), kKinds, installed, "cpu", problems);
  EXPECT_EQ(problems.text(), "") << body;
  return selections;
}

Problems problems_of(const std::string& body, const std::vector<KnownPlugin>& installed = plugins()) {
  Problems problems;
  select_plugins(config_of(body), kKinds, installed, "cpu", problems);
  return problems;
}

std::string refusal(const std::string& body, const std::vector<KnownPlugin>& installed = plugins()) {
  return problems_of(body, installed).text();
}

// "a b -c": names of a kind, switched-off ones with a minus.
[[maybe_unused]] std::string names(const std::vector<Selection>& selections, const std::string& kind) {
  std::string text;
  for (const Selection& s : selections) {
    if (s.kind == kind) text += concat(text.empty() ? "" : " ", s.enabled ? "" : "-", s.name);
  }
  return text;
}

[[maybe_unused]] Selection one(const std::string& body, const std::string& kind) {
  for (const Selection& s : select(body)) {
    if (s.kind == kind) return s;
  }
  return {};
}

}  // namespace
}  // namespace drivetrain
