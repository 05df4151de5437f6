// A few cells of the matrix with ranks as processes, by `drivetrain launch` and a JSON file.
#include <gtest/gtest.h>

#include <drivetrain/error.h>
#include "matrix/cells.h"
#include "matrix/curve.h"

#include "support/run_program.h"

namespace drivetrain::test {
namespace {

using Names = std::vector<std::string>;

class MatrixProgram : public testing::TestWithParam<Names> {};

TEST_P(MatrixProgram, processes_train_as_one_does) {
  const Cell cell = cell_of(GetParam());
  const Value config = config_of(cell, base_config());
  const TempFolder folder;
  std::ofstream(folder / "cell.json") << config.to_json(2);
  const Ran ran = run_shell(concat("OMP_NUM_THREADS=1 ", program(), " launch -n ", ranks_of(cell), " ",
                                   folder / "cell.json", " --set threads=1 --set output_dir=", folder / "run"));
  ASSERT_EQ(ran.code, 0) << ran.output << config.to_json();
  const Curve curve = read_curve(folder / "run");
  EXPECT_EQ(missing_plugin(cell, curve), "");
  const Deviation d = deviation(curve, reference_of(config));
  EXPECT_LE(d.tolerances, 1) << d.outside << "\n" << config.to_json();
}

std::string test_name(const testing::TestParamInfo<Names>& info) {
  std::string name;
  for (const std::string& part : info.param) name += (name.empty() ? "" : "_") + part;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Sample, MatrixProgram,
                         testing::Values(Names{"tp2sp", "dp2", "zero3", "fused", "flash"},
                                         Names{"1f1b2", "dp2", "zero2", "full", "qwen2"},
                                         Names{"ring2", "tp2", "fsdp", "flash", "fused", "qwen2"},
                                         Names{"ulysses2ring2", "zero1", "selective"},
                                         Names{"tp2sp", "interleaved2", "ring2", "zero3", "fused", "flash"},
                                         Names{"tp2", "zerobubble2", "dp2", "hsdp", "offload", "qwen2"}),
                         test_name);

}  // namespace
}  // namespace drivetrain::test
