// The conformance suite of dataset over every built implementation, those that read files on some written here.
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>

#include <map>

#include <drivetrain/dataset.h>

#include <drivetrain/testkit/kit/suite.h>
#include <drivetrain/testkit/kit/temp_folder.h>
#include "state/safetensors_writer.h"

namespace drivetrain::test {
namespace {

// Documents of different bytes, some of them held out.
Value text_options(const TempFolder& folder) {
  for (int i = 0; i < 40; ++i)
    std::ofstream(folder.path(concat("d", i, ".txt"))) << "document " << i << std::string(60, 'a' + i % 26);
  return Value::Object{{"files", Value::Array{folder.path()}}, {"seq_length", 16}};
}

// The same documents, several in a row.
Value packed_options(const TempFolder& folder, const char* method) {
  Value source = Value::object();
  source.set("type", "text");
  source.set("params", text_options(folder));
  return Value::Object{{"source", std::move(source)}, {"seq_length", 160}, {"method", method}, {"window", 7}};
}

// Two steps of three micro-batches of two rows.
Value token_batches_options(const TempFolder& folder) {
  const std::string file = folder.path("batches.safetensors");
  const at::Tensor tokens = at::arange(2 * 3 * 2 * 17, at::TensorOptions(at::kLong)).remainder(251).view({2, 3, 2, 17});
  write_safetensors(file, {{"tokens", at::kLong, {2, 3, 2, 17}}}, {}, [&](const std::string&) { return tokens; });
  return Value::Object{{"file", file}};
}

TEST(DatasetConformance, every_built_dataset_passes) {
  const TempFolder documents, batches;
  const std::map<std::string, Value> options = {
      {"packed", packed_options(documents, "best_fit")},
      {"synthetic", parse_json(R"({"seq_length": 48})", "test")},
      {"text", text_options(documents)},
      {"token_batches", token_batches_options(batches)},
  };
  for (const std::string& name : installed_plugins().names(Dataset::kKind)) {
    const auto found = options.find(name);
    run_suite({Dataset::kKind, name, found == options.end() ? Value::object() : found->second});
  }
  for (const char* method : {"fixed", "length_groups", "none"})
    run_suite({Dataset::kKind, "packed", packed_options(documents, method)});
}

}  // namespace
}  // namespace drivetrain::test
