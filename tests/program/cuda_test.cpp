// "device": "cuda" where it cannot be: what is missing is said in one message, with the way out.
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

const bool built_with_cuda = std::filesystem::exists(DRIVETRAIN_BUILD_DIR "/lib/libdrivetrain_cuda.so");

class CudaDevice : public ProgramTest {
 protected:
  CudaDevice() { tiny_with("\"threads\": 1", "\"device\": \"cuda\""); }

  // A folder of LibTorch with all NVIDIA libraries, which do nothing, or with none of them.
  std::string torch(const std::string& option) const {
    const Ran ran =
        run_shell("cd " + folder() + " && python3 " DRIVETRAIN_SOURCE_DIR "/tests/support/nvidia_stubs.py " +
                  DRIVETRAIN_TORCH_FOLDER + " libraries " + option);
    EXPECT_EQ(ran.code, 0) << ran.output;
    return "DRIVETRAIN_TORCH=" + path("libraries/torch") + " CUDA_VISIBLE_DEVICES=''";
  }
  void expect_says_not_built(const std::string& output) const {
    expect_says(output, {"tiny.json:3:13", "not in this build", "without nvcc 13", "libdrivetrain_cuda.so",
                         "\"device\": \"cpu\""});
  }
};

TEST_F(CudaDevice, a_missing_nvidia_library_is_named_with_the_command_that_brings_it) {
  // Those of the system's own toolkit would do, and are hidden here by the ones that are not libraries at all.
  const std::string environment = torch("--none");
  for (const char* name : {"libcufile.so.0", "libcublas.so.13"})
    write(std::string("libraries/nvidia/cu13/lib/") + name, "no library");
  const Ran ran = train("", environment);
  EXPECT_EQ(ran.code, 2) << ran.output;
  if (!built_with_cuda) return expect_says_not_built(ran.output);
  expect_says(ran.output, {"tiny.json:3:13", "needs all of LibTorch's CUDA libraries; the dynamic linker says", ".so",
                           path("libraries/torch"), "DRIVETRAIN_TORCH=$(tools/setup/deps gpu)/torch"});
}

TEST_F(CudaDevice, a_machine_without_a_gpu_is_told_in_the_drivers_words) {
  const Ran ran = train("", torch(""));
  EXPECT_EQ(ran.code, 2) << ran.output;
  if (!built_with_cuda) return expect_says_not_built(ran.output);
  expect_says(ran.output, {"tiny.json:3:13", "needs a GPU, and there is none to use", "the CUDA runtime says cudaError",
                           "driver ", "wanted CUDA 13", "nvidia-smi", "CUDA_VISIBLE_DEVICES", "\"device\": \"cpu\""});
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(CudaDevice, a_driver_of_an_older_cuda_is_named_with_the_release_that_is_wanted) {
  const Ran ran = train("", torch("") + " LD_LIBRARY_PATH=" NVIDIA_STAND_INS " STAND_IN_DRIVER=12080");
  EXPECT_EQ(ran.code, 2) << ran.output;
  if (!built_with_cuda) return expect_says_not_built(ran.output);
  expect_says(ran.output, {"tiny.json:3:13", "cudaErrorInsufficientDriver", "driver of CUDA 12.8, wanted CUDA 13",
                           "install a driver of CUDA 13"});
}

TEST_F(CudaDevice, the_visible_devices_of_another_host_are_held_against_those_of_this_one) {
  const Ran ran = train(
      "", torch("") + " LD_LIBRARY_PATH=" NVIDIA_STAND_INS " STAND_IN_DRIVER=13000" + " CUDA_VISIBLE_DEVICES=GPU-77");
  EXPECT_EQ(ran.code, 2) << ran.output;
  if (!built_with_cuda) return expect_says_not_built(ran.output);
  expect_says(ran.output, {"cudaErrorNoDevice", "driver of CUDA 13.0",
                           "CUDA_VISIBLE_DEVICES=GPU-77 shows none of the 2 of this host, which are GPU-00010203-0405",
                           "that of another host"});
}

TEST_F(CudaDevice, a_library_of_collectives_that_is_not_there_is_named) {
  const Ran ran = train("", torch("") + " DRIVETRAIN_NCCL=/nowhere/libnccl.so.2");
  EXPECT_EQ(ran.code, 2) << ran.output;
  if (!built_with_cuda) return expect_says_not_built(ran.output);
  expect_says(ran.output, {"tiny.json:3:13", "DRIVETRAIN_NCCL=/nowhere/libnccl.so.2: there is no such file"});
}

TEST_F(CudaDevice, a_build_without_the_cuda_parts_says_so_beside_the_other_errors) {
  std::filesystem::create_directories(path("tree/bin"));
  std::filesystem::create_directories(path("tree/lib"));
  std::filesystem::copy_file(program(), path("tree/bin/drivetrain"));
  for (const char* name : {"libdrivetrain.so", "drivetrain"})
    std::filesystem::create_symlink(std::string(DRIVETRAIN_BUILD_DIR "/lib/") + name, path("tree/lib/") + name);
  const Ran ran = run_shell(path("tree/bin/drivetrain") + " train " + path("tiny.json") + " --set fish=1");
  EXPECT_EQ(ran.code, 2) << ran.output;
  expect_says_not_built(ran.output);
  expect_says(ran.output, {"--set #1", "fish"});
}

TEST_F(CudaDevice, a_plan_is_made_without_one) {
  const Ran ran = train("--plan --set attention=standard");
  EXPECT_EQ(ran.output.find("needs a GPU"), std::string::npos) << ran.output;
  EXPECT_EQ(ran.output.find("CUDA libraries"), std::string::npos) << ran.output;
  EXPECT_EQ(ran.code == 0, built_with_cuda) << ran.output;  // else there are no plugins for it to plan with
}

}  // namespace
}  // namespace drivetrain::test
