// Types of products that `drivetrain bench hardware` measures: those that plans ask for, as far as a device has them.
#include <algorithm>
#include <cmath>

#include "bench/block_rates.h"
#include "predict/hardware.h"
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

const at::Device kGpu{at::kCUDA, 0};

std::vector<std::string> names_of(const at::Device& device, int arch) {
  std::vector<std::string> names;
  for (const ProductType& type : product_types(device, arch)) names.push_back(type.name);
  return names;
}

class MeasuredTypes : public ProgramTest {
 protected:
  void SetUp() override {
    write("gpu.json", R"({"model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 128,
    "num_attention_heads": 2, "vocab_size": 512, "max_position_embeddings": 64}}, "train_batch_size": 1,
    "train_steps": 1, "dataset": {"type": "synthetic", "params": {"seq_length": 64}}, "device": "cuda",
    "attention": {"type": "standard"}})");
  }
  // A machine's file as `bench hardware` writes it, with these types.
  void write_machine(const std::vector<std::string>& types) {
    Hardware machine = read_hardware(std::string(DRIVETRAIN_SOURCE_DIR) + "/configs/hardware/h100.json", "");
    machine.peak_tflops = Value::object();
    for (const std::string& type : types) machine.peak_tflops.set(type, 100.0);
    write("machine.json", hardware_value(machine).to_json(2));
  }
  std::string planned(const std::string& set) const {
    return concat("plan ", path("gpu.json"), " -n 1 --hardware ", path("machine.json"), " --set '", set, "'");
  }
};

// One config of each precision, and updates whose products have a type of their own.
const std::vector<std::pair<const char*, std::vector<std::string>>>& asked() {
  static const std::vector<std::pair<const char*, std::vector<std::string>>> all = {
      {"train_steps=2", {"float32"}},
      {R"(bf16={"enabled": true})", {"bfloat16"}},
      {R"(fp16={"enabled": true})", {"float16"}},
      {R"(fp8={"enabled": true, "recipe": "Float8CurrentScaling"})", {"bfloat16", "float8"}},
      {R"(fp8={"enabled": true, "recipe": "DelayedScaling"})", {"bfloat16", "float8"}},
      {R"(fp8={"enabled": true, "recipe": "Float8BlockScaling"})", {"bfloat16", "float8_blocks"}},
      {R"(optimizer={"type": "Muon", "params": {"lr": 0.02}})", {"bfloat16", "float32"}}};
  return all;
}

TEST_F(MeasuredTypes, are_all_that_plans_ask_for) {
  const std::vector<std::string> of_hopper = names_of(kGpu, 90);
  for (const auto& [set, types] : asked()) {
    SCOPED_TRACE(set);
    write_machine(of_hopper);
    const Ran ran = run(planned(set));
    EXPECT_EQ(ran.code, 0) << ran.output;
    for (const std::string& type : types) {  // by leaving each out: that it is asked for
      std::vector<std::string> others = of_hopper;
      ASSERT_EQ(std::erase(others, type), 1u) << type;
      write_machine(others);
      expect_refused(
          planned(set), 2,
          {"machine.json: no peak_tflops." + type, "the file has", "bench hardware", "float8 from sm_89 on"});
    }
  }
}

TEST_F(MeasuredTypes, are_those_that_the_device_multiplies_in) {
  const auto has = [](const std::vector<std::string>& names, const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const int arch : {80, 86, 89, 90, 100, 120}) {
    const std::vector<std::string> names = names_of(kGpu, arch);
    for (const char* name : {"float32", "bfloat16", "float16"}) EXPECT_TRUE(has(names, name)) << arch << name;
    EXPECT_EQ(has(names, "float8"), arch >= 89) << arch;
    EXPECT_EQ(has(names, "float8_blocks"), arch == 90) << arch;
  }
  EXPECT_FALSE(has(names_of(at::kCPU, 0), "float8")) << "emulated there";
}

// LibTorch's product in 8 bits checks sizes and layout of its operands on processors, too; that with scales of blocks
// is on CUDA alone.
TEST(MeasuredProducts, are_multiplied_in_every_type) {
  for (const ProductType& type : product_types(kGpu, 90)) {
    if (type.of_blocks) continue;
    const double rate = product_rate(at::kCPU, type, {32, 48, 64, 0});
    EXPECT_TRUE(std::isfinite(rate) && rate > 0) << type.name;
  }
}

}  // namespace
}  // namespace drivetrain::test
