// The table of types that a run begins with.
#include "report/dtype_text.h"

#include <gtest/gtest.h>

#include "plan/prepare_run.h"
#include "support/train_threads.h"

namespace drivetrain {
namespace {

std::string table_of(const std::string& more) {
  const Value config = parse_json(
      R"({"train_steps": 1, "train_micro_batch_size_per_gpu": 1, "model": {"type": "gpt", "params": {"num_layers": 1,
    "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 16, "max_position_embeddings": 8}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 8}}, "optimizer": "adamw")" +
          more + "}",
      "test");
  Problems problems;
  const RunSettings settings = read_run_settings(config, "test.json", problems);
  const auto chosen = choose_plugins(config, test::built_plugins(), "cpu", problems);
  problems.throw_if_any();
  RankSetup setup;
  setup.store = make_local_store();
  setup.log = make_console_log({.rank = 1});
  return dtype_table(prepare_run(settings, chosen, test::built_plugins(), setup, Purpose::train)->plan);
}

// What the row of products says of this processor; "" without one.
std::string products_of(const std::string& table) {
  const size_t begin = table.find("\n  products");
  return begin == std::string::npos ? "" : table.substr(begin, table.find('\n', begin + 1) - begin);
}
std::string without_products(std::string table) {
  const std::string row = products_of(table);
  return row.empty() ? table : table.erase(table.find(row), row.size());
}

TEST(DtypeTable, names_what_chose_each_type) {
  EXPECT_EQ(table_of(""), R"(types
  parameter  float32   default
  compute    float32   default
  gradient   float32   default
  reduce     float32   default
  optimizer  float32   default)");
  EXPECT_EQ(without_products(table_of(R"(, "bf16": {"enabled": true})")), R"(types
  parameter  bfloat16  precision/bf16
  compute    bfloat16  precision/bf16
  gradient   float32   precision/bf16
  reduce     float32   precision/bf16
  optimizer  float32   precision/bf16)");
  EXPECT_EQ(
      without_products(table_of(
          R"(, "fp16": {"enabled": true}, "data_types": {"grad_accum_dtype": "half"}, "communication_data_type": "fp32")")),
      R"(types
  parameter  float16   precision/fp16
  compute    float16   precision/fp16
  gradient   float16   data_types.grad_accum_dtype
  reduce     float32   communication_data_type
  optimizer  float32   precision/fp16)");
}

TEST(DtypeTable, says_what_multiplies_matrices_where_that_is_not_simply_float32) {
  const std::string high = R"(, "float32_matmul_precision": "high")";
  EXPECT_EQ(products_of(table_of(R"(, "float32_matmul_precision": "highest")")), "");
  EXPECT_NE(products_of(table_of(high)).find("float32_matmul_precision high"), std::string::npos);
  EXPECT_NE(products_of(table_of(R"(, "bf16": {"enabled": true})")).find("float32"), std::string::npos);
  EXPECT_NE(products_of(table_of(R"(, "fp16": {"enabled": true})" + high))
                .find("float32_matmul_precision high changes nothing in a run of 16 bits"),
            std::string::npos);
}

}  // namespace
}  // namespace drivetrain
