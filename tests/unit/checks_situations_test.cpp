// Which exceptions are a user's situation, with which code of the contract, and which are our bug.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <new>
#include <system_error>
#include <thread>

#include "device/holders.h"
#include "plugin_calls/plugin_call.h"
#include "plugin_calls/situations.h"

namespace drivetrain::test {
namespace {

// Of LibTorch's class for whatever an accelerator says.
c10::AcceleratorError of_device(const std::string& text) {
  return c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, 2, text);
}
c10::Error of_torch(const std::string& text) {
  return c10::Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text);
}

int code_of(const std::exception& e) {
  const auto situation = situation_of(e);
  EXPECT_TRUE(!situation || !situation->remedy.empty());
  return situation ? static_cast<int>(situation->code) : 1;
}

TEST(Situations, memory_that_is_not_to_be_had_is_4_whoever_says_it) {
  EXPECT_EQ(code_of(std::bad_alloc()), 4);
  EXPECT_EQ(code_of(c10::OutOfMemoryError({"f", "f", 1}, "CUDA out of memory. Tried to allocate 2.00 GiB.")), 4);
  EXPECT_EQ(
      code_of(of_torch("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes. Error code 12")), 4);
  EXPECT_EQ(code_of(of_device("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable")), 4);
  EXPECT_EQ(code_of(of_torch("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")), 4);
  EXPECT_EQ(code_of(of_torch("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`")), 4);
  EXPECT_EQ(code_of(std::system_error(ENOMEM, std::generic_category())), 4);
}

TEST(Situations, disks_threads_and_files_are_8) {
  EXPECT_EQ(
      code_of(std::filesystem::filesystem_error("rename", "a", "b", std::error_code(ENOSPC, std::generic_category()))),
      8);
  EXPECT_EQ(code_of(std::system_error(EAGAIN, std::generic_category())), 8);
  EXPECT_EQ(code_of(std::system_error(EMFILE, std::generic_category())), 8);
  std::ifstream missing;
  missing.exceptions(std::ios::failbit);
  try {
    missing.open("/nowhere/at/all");
    ADD_FAILURE();
  } catch (const std::exception& e) {
    EXPECT_EQ(code_of(e), 8);
  }
}

TEST(Situations, a_gpu_that_is_taken_missing_or_broken_has_its_code) {
  EXPECT_EQ(code_of(of_device("CUDA error: CUDA-capable device(s) is/are busy or unavailable")), 2);
  EXPECT_EQ(code_of(of_device("CUDA error: all CUDA-capable devices are busy or unavailable")), 2);
  EXPECT_EQ(code_of(of_device("CUDA error: no CUDA-capable device is detected")), 2);
  EXPECT_EQ(code_of(of_device("CUDA error: no kernel image is available for execution on the device")), 3);
  EXPECT_EQ(code_of(of_device("CUDA error: uncorrectable ECC error encountered")), 8);
}

TEST(Situations, what_is_a_bug_stays_one_and_an_error_keeps_its_code) {
  EXPECT_EQ(code_of(of_torch("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)")), 1);
  EXPECT_EQ(code_of(of_device("CUDA error: an illegal memory access was encountered")), 1);
  EXPECT_EQ(code_of(std::out_of_range("vector::at")), 1);
  try {
    std::thread().join();
    ADD_FAILURE();
  } catch (const std::system_error& e) {
    EXPECT_EQ(code_of(e), 1) << e.what();
  }
  EXPECT_EQ(code_of(fail(ErrorCode::numeric, "out of memory")), 1) << "an Error is nobody's situation";
}

// What a plugin throws is its fault, but for a situation, which has its code and the plugin's name.
TEST(Situations, in_a_plugin_s_call_they_keep_their_code_and_a_wrong_shape_is_the_plugin_s) {
  const std::string id = "dataset/mine";
  const auto thrown = [&](const std::exception_ptr& what) {
    try {
      plugin_call({id, "read"}, [&] { std::rethrow_exception(what); });
    } catch (const Error& e) {
      return concat(static_cast<int>(e.code()), " ", e.what());
    }
    return std::string();
  };
  const std::string disk = thrown(std::make_exception_ptr(
      std::filesystem::filesystem_error("cannot write", "a", std::error_code(ENOSPC, std::generic_category()))));
  EXPECT_TRUE(disk.starts_with("8 in dataset/mine, hook read: ")) << disk;
  EXPECT_NE(disk.find("No space left on device"), std::string::npos) << disk;
  EXPECT_TRUE(thrown(std::make_exception_ptr(std::bad_alloc())).starts_with("4 in dataset/mine"));
  EXPECT_TRUE(thrown(std::make_exception_ptr(of_torch("shape '[3]' is invalid"))).starts_with("3 in dataset/mine"));
}

TEST(DeviceHolders, are_named_with_program_and_bytes_as_far_as_they_are_known) {
  EXPECT_EQ(holders_text({}), "");
  EXPECT_EQ(holders_text({{4711, 70200000000, "python"}, {4712, -1, ""}}),
            "\n   it is held by process 4711 (python, 70.2 GB), process 4712");
  const std::string many = holders_text(std::vector<DeviceHolder>(6, {1, 1000000000, ""}));
  EXPECT_NE(many.find("(1.0 GB) and 2 more"), std::string::npos) << many;
}

}  // namespace
}  // namespace drivetrain::test
