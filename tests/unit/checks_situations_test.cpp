// Which exceptions are a user's situation, with which code of the contract, and which are our bug.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <system_error>
#include <thread>

#include "device/holders.h"
#include "plugin_calls/device_errors.h"
#include "plugin_calls/plugin_call.h"
#include "plugin_calls/situations.h"

namespace drivetrain::test {
namespace {

// Of LibTorch's class for whatever an accelerator says.
c10::AcceleratorError of_device(int number, const std::string& text) {
  return c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, number, text);
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
  EXPECT_EQ(code_of(of_device(2, "CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable")), 4);
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

struct Row {
  int number;
  const char *name, *words;
  ErrorCode code;
  const char *what, *remedy;
};
#define ROW(number, name, words, code, what, remedy) {number, #name, words, ErrorCode::code, what, remedy},
constexpr Row kRows[] = {
#include "plugin_calls/device_errors.inc"
};

// What CUDA 13 says (cudaGetErrorString), whole.
const std::map<int, std::string> kSaid = {
    {2, "out of memory"},
    {3, "initialization error"},
    {34, "CUDA driver is a stub library"},
    {35, "CUDA driver version is insufficient for CUDA runtime version"},
    {36, "API call is not supported in the installed CUDA driver"},
    {46, "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "no CUDA-capable device is detected"},
    {101, "invalid device ordinal"},
    {102, "device doesn't have valid Grid license"},
    {200, "device kernel image is invalid"},
    {209, "no kernel image is available for execution on the device"},
    {214, "uncorrectable ECC error encountered"},
    {218, "a PTX JIT compilation failed"},
    {220, "uncorrectable NVLink error detected during the execution"},
    {221, "PTX JIT compiler library not found"},
    {222, "the provided PTX was compiled with an unsupported toolchain."},
    {226, "Invalid access of peer GPU memory over nvlink or a hardware error"},
    {302, "shared object symbol not found"},
    {303, "shared object initialization failed"},
    {700, "an illegal memory access was encountered"},
    {701, "too many resources requested for launch"},
    {702, "the launch timed out and was terminated"},
    {710, "device-side assert triggered"},
    {714, "hardware stack error"},
    {715, "an illegal instruction was encountered"},
    {716, "misaligned address"},
    {717, "operation not supported on global/shared address space"},
    {718, "invalid program counter"},
    {719, "unspecified launch failure"},
    {802, "system not yet initialized"},
    {803, "system has unsupported display driver / cuda driver combination"},
    {804, "forward compatibility was attempted on non supported HW"},
    {805, "MPS client failed to connect to the MPS control daemon or the MPS server"},
    {806, "the remote procedural call between the MPS server and the MPS client failed"},
    {807, "MPS server is not ready to accept new MPS client requests"},
    {808, "the hardware resources required to create MPS client have been exhausted"},
    {809, "the hardware resources required to support device connections have been exhausted"},
    {810, "the MPS client has been terminated by the server"},
    {304, "OS call failed or operation not supported on this OS"},
    {911, "an async error has occured in external entity outside of CUDA"},
    {999, "unknown error"},
};

// The whole table: by its number, whatever the words are, and by CUDA's own words alone, which no other row may catch.
TEST(Situations, what_a_gpu_says_has_its_code_and_remedy_row_by_row) {
  ASSERT_EQ(std::size(kRows), kSaid.size());
  for (const Row& row : kRows) {
    const auto own = kSaid.find(row.number);
    ASSERT_NE(own, kSaid.end()) << row.name;
    const std::string text = "CUDA error: " + own->second;
    EXPECT_NE(text.find(row.words), std::string::npos) << row.name;
    for (const auto& situation : {situation_of(of_torch(text + "\nCompile with `TORCH_USE_CUDA_DSA` to enable more")),
                                  situation_of(of_device(row.number, "CUDA error: in words of another release"))}) {
      ASSERT_TRUE(situation) << row.name;
      EXPECT_EQ(situation->code, row.code) << row.name;
      EXPECT_EQ(situation->remedy, row.remedy) << row.name;
      EXPECT_EQ(situation->text().find(concat(row.what, ": CUDA error: ")), 0u) << situation->text();
      EXPECT_NE(situation->text().find(concat("(", row.name, ")")), std::string::npos) << situation->text();
    }
  }
  EXPECT_EQ(code_of(of_device(900, "CUDA error: operation not permitted when stream is capturing")), 1);
}

// The codes of the contract.
TEST(Situations, of_a_gpu_have_the_codes_of_the_contract) {
  for (const auto& [code, numbers] :
       std::map<int, std::vector<int>>{{2, {3, 35, 46, 100, 101, 302, 303, 802, 805, 806, 808, 809}},
                                       {3, {200, 209, 218, 700, 710, 719}},
                                       {4, {2}},
                                       {5, {220, 226}},
                                       {8, {214, 810, 999}}})
    for (const int number : numbers) EXPECT_EQ(code_of(of_device(number, "CUDA error")), code) << number;
  for (const int number : {805, 806, 807, 808, 809, 810})
    EXPECT_NE(situation_of(of_device(number, "CUDA error"))->remedy.find("CUDA_MPS_PIPE_DIRECTORY"), std::string::npos);
}

// Who, where in the step, and the last unit: a kernel that fails is told of later than it was called.
TEST(Situations, what_a_gpu_says_names_rank_step_and_last_unit) {
  work_rank() = {.rank = 5, .world_size = 8, .device = 1, .step_place = [] { return std::string("step 7: backward"); }};
  const std::string id = "strategy/mine", other = "optimizer/mine";
  plugin_call({id, "backward", "block.3"}, [] {});
  std::string said;
  try {
    plugin_call({other, "update"}, [] {
      throw of_device(
          700,
          "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously "
          "reported\nCompile with `TORCH_USE_CUDA_DSA`");
    });
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), 3);
    said = e.what();
  }
  work_rank() = {};
  for (const char* part : {"in optimizer/mine, hook update, rank 5: a kernel has used an illegal address: CUDA error: "
                           "an illegal memory access "
                           "was encountered (cudaErrorIllegalAddress)\n   GPU 1 of rank 5, step 7: backward; last "
                           "unit: strategy/mine, hook "
                           "backward, unit block.3\n",
                           "CUDA_LAUNCH_BLOCKING=1"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
  EXPECT_EQ(said.find("asynchronously"), std::string::npos) << said;
}

// LibTorch's allocator, cuBLAS and cuDNN have words of their own, and the same place.
TEST(Situations, what_libraries_say_of_a_gpu_names_the_place_too) {
  const auto said = [](const std::exception& e) {
    work_rank() = {
        .rank = 5, .world_size = 8, .device = 1, .step_place = [] { return std::string("step 7: forward"); }};
    const std::string id = "attention/mine";
    plugin_call({id, "forward", "block.2"}, [] {});
    const auto situation = situation_of(e);
    work_rank() = {};
    return situation ? concat(static_cast<int>(situation->code), " ", situation->text()) : "none";
  };
  const std::string place = "GPU 1 of rank 5, step 7: forward; last unit: attention/mine, hook forward, unit block.2";
  const auto expect = [&](const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
  };
  expect(said(c10::OutOfMemoryError({"f", "f", 1}, "CUDA out of memory. Tried to allocate 2.00 GiB.")),
         {"4 out of memory on the GPU: CUDA out of memory. Tried to allocate 2.00 GiB.", place, "nvidia-smi"});
  expect(said(of_torch("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")),
         {"4 out of memory on the GPU, for cuBLAS", place, "smaller micro-batch"});
  expect(said(of_torch("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`")),
         {"3 a kernel has failed, or the GPU has", place, "CUDA_LAUNCH_BLOCKING=1", "Xid"});
  expect(said(of_torch("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED")), {"3 a kernel has failed", place});
  expect(said(of_torch("CUDA error: CUBLAS_STATUS_INTERNAL_ERROR")), {"3 cuBLAS has failed, or a", place, "Xid"});
  expect(said(of_torch("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR")), {"3 cuDNN has failed, or a", place, "Xid"});
  EXPECT_EQ(said(of_torch("cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR")), "none");
  expect(said(of_torch("CUDA driver error: out of memory")), {"4 out of memory on the GPU: ", place, "nvidia-smi"});
  expect(said(of_torch("CUDA driver error: unknown error")), {"8 the GPU is lost", place, "Xid"});
  expect(said(of_torch("CUDA error: CUBLAS_STATUS_ARCH_MISMATCH when calling `cublasLtMatmul(...)`")),
         {"3 cuBLAS has no such product for this GPU", place});
  EXPECT_EQ(said(std::bad_alloc()).find("GPU"), std::string::npos);
}

// What the program asks for where an exception would end it as a bug.
TEST(Situations, the_program_learns_code_and_text_of_a_device_s_last_word) {
  char text[512] = "";
  try {
    throw of_device(714, "CUDA error: hardware stack error");
  } catch (...) {
    EXPECT_EQ(drivetrain_device_error(text, sizeof text), 8);
  }
  EXPECT_NE(std::string(text).find("the GPU has failed: CUDA error: hardware stack error"), std::string::npos) << text;
  EXPECT_EQ(drivetrain_device_error(text, sizeof text), 0) << "there is no exception";
  try {
    throw std::runtime_error("CUDA error: hardware stack error");
  } catch (...) {
    EXPECT_EQ(drivetrain_device_error(text, sizeof text), 0) << "of nobody who speaks for a device";
  }
}

TEST(Situations, what_is_a_bug_stays_one_and_an_error_keeps_its_code) {
  EXPECT_EQ(code_of(of_torch("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)")), 1);
  EXPECT_EQ(code_of(of_device(1, "CUDA error: invalid argument")), 1);
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
            "\n   it is held by process 4711 (python, 66947 MiB), process 4712");
  const std::string many = holders_text(std::vector<DeviceHolder>(6, {1, 1000000000, ""}));
  EXPECT_NE(many.find("(953 MiB) and 2 more"), std::string::npos) << many;
}

}  // namespace
}  // namespace drivetrain::test
