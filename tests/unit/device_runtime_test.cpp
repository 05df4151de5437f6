#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <map>

#include <drivetrain/device.h>
#include <drivetrain/error.h>
#include <drivetrain/testkit/kit/temp_folder.h>
#include "contract/device_runtime.h"
#include "device/given_library.h"
#include "device/holders.h"
#include "device/no_device.h"
#include "device/open_device.h"
#include "plugin_calls/plugin_call.h"
#include "plugin_calls/situations.h"
#include "rendezvous/rendezvous.h"
#include "support/idle_device.h"
#include "train/start_device.h"

namespace drivetrain {
namespace {

// Two GPUs that only remember what is asked of them.
class TwoDevices : public test::IdleDevice {
 public:
  int64_t count() const override { return seen; }
  DeviceFacts facts(int64_t index) const override {
    return {name, index == 1 ? second_arch : 90, 0, uuid.empty() ? concat("uuid-", first + index) : uuid};
  }
  void use(int64_t index) override {
    used = index;
    if (!says.empty()) throw c10::AcceleratorError({__func__, __FILE__, 0}, number, says);
  }
  void* current_stream(const at::Device& device) override { return this; }
  std::string error_text(int status) const override { return "the driver's words"; }

  int64_t used = -1;
  std::string says = {}, name = "test", uuid = {};
  int second_arch = 90;
  int number = 2;               // what CUDA answers to its first call, with what it says
  int64_t seen = 2, first = 0;  // GPUs, of which others may be hidden
};

template <class Call>
std::string error_of(const Call& call, ErrorCode code = ErrorCode::config) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "no error";
}

class DeviceRuntimeTest : public testing::Test {
 protected:
  ~DeviceRuntimeTest() override {
    set_device_runtime(nullptr);
    work_rank() = {};
  }
  TwoDevices devices;
};

TEST_F(DeviceRuntimeTest, cpu_runs_open_nothing_and_have_no_stream) {
  open_device("cpu");
  use_device("cpu", 5, 6);
  EXPECT_EQ(device_runtime(), nullptr);
  EXPECT_EQ(current_stream(at::kCPU), nullptr);
  EXPECT_NE(error_of([] { (void)current_stream(at::Device(at::kCUDA, 0)); }, ErrorCode::internal)
                .find("before its device was opened"),
            std::string::npos);
}

TEST_F(DeviceRuntimeTest, a_gpu_that_another_process_has_filled_taken_or_broken_is_no_bug_of_ours) {
  set_device_runtime(&devices);
  work_rank().rank = 3;
  for (const auto& [says, number, code, remedy] :
       {std::tuple("CUDA error: out of memory", 2, 4, "nvidia-smi"),
        std::tuple("CUDA error: CUDA-capable device(s) is/are busy or unavailable", 46, 2, "exclusive mode"),
        std::tuple("CUDA error: an illegal memory access was encountered", 700, 3, "CUDA_LAUNCH_BLOCKING=1"),
        std::tuple("CUDA error: unknown error", 999, 8, "Xid")}) {
    devices.says = says, devices.number = number;
    try {
      start_device("cuda", 1, 2);
      ADD_FAILURE() << says;
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_EQ(static_cast<int>(e.code()), code) << text;
      for (const char* part : {"the GPU of this rank cannot be used", "GPU 1 (test, uuid-1) of rank 3", says, remedy})
        EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
    }
  }
  devices.says = "CUDA error: invalid argument", devices.number = 1;
  EXPECT_THROW(start_device("cuda", 1, 2), c10::Error);
}

TEST_F(DeviceRuntimeTest, a_gpu_older_than_the_kernels_is_refused_with_its_name_and_the_way_out) {
  check_age(devices);
  devices.second_arch = 80;
  check_age(devices);
  devices.second_arch = 75;
  const std::string message = error_of([&] { check_age(devices); });
  for (const char* part :
       {"GPU 1 (test) is sm_75; sm_80 or newer is needed", "CUDA_VISIBLE_DEVICES", "\"device\": \"cpu\""})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST_F(DeviceRuntimeTest, each_rank_of_a_host_takes_its_own_device) {
  set_device_runtime(&devices);
  use_device("cuda", 1, 2);
  EXPECT_EQ(devices.used, 1);
  EXPECT_EQ(current_stream(at::Device(at::kCUDA, 1)), &devices);
}

TEST_F(DeviceRuntimeTest, more_ranks_than_devices_are_refused_with_both_numbers_and_the_way_out) {
  set_device_runtime(&devices);
  const std::string message = error_of([] { use_device("cuda", 0, 3); });
  for (const char* part :
       {"3 ranks of this host need a GPU each, and this process sees 2", "launch -n 2", "CUDA_VISIBLE_DEVICES"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(devices.used, -1);
}

// As under `srun --gpus-per-task=1`: each process sees one, its own.
TEST_F(DeviceRuntimeTest, a_rank_that_sees_one_device_takes_it_whatever_its_number) {
  set_device_runtime(&devices);
  devices.seen = 1;
  use_device("cuda", 3, 4);
  EXPECT_EQ(devices.used, 0);
  EXPECT_EQ(device_index(3, 4), 0);
  devices.seen = 4;
  EXPECT_EQ(device_index(3, 4), 3);
}

TEST_F(DeviceRuntimeTest, two_ranks_on_one_device_are_told_which) {
  set_device_runtime(&devices);
  devices.seen = 1;
  const auto store = make_local_store();
  for (const int64_t rank : {0, 1, 2}) {
    devices.first = rank;
    check_own_device(*store, rank, rank, 4);
  }
  devices.first = 1;
  const std::string message = error_of([&] { check_own_device(*store, 3, 3, 4); });
  for (const char* part : {"rank 3 and another rank", "one and the same GPU (test, UUID uuid-1)", "4 ranks",
                           "launch -n 1", "CUDA_VISIBLE_DEVICES"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

class SharedDeviceTest : public DeviceRuntimeTest {
 protected:
  SharedDeviceTest() {
    set_device_runtime(&devices);
    setenv(kShareDevices, "1", 1);
  }
  ~SharedDeviceTest() override { unsetenv(kShareDevices); }
  std::string of_two_ranks() {
    const auto store = make_local_store();
    return error_of([&] {
      for (const int64_t rank : {0, 1}) check_own_device(*store, rank, rank, 2);
    });
  }
};

TEST_F(SharedDeviceTest, ranks_may_share_one_where_the_variable_says_so) {
  devices.seen = 1;
  EXPECT_EQ(of_two_ranks(), "no error");
  devices.seen = 2;  // of which each has two ranks
  use_device("cuda", 3, 4);
  EXPECT_EQ(devices.used, 1);
  EXPECT_EQ(device_index(2, 4), 0);
  EXPECT_EQ(device_index(1, 2), 1);
  setenv(kShareDevices, "0", 1);
  devices.seen = 1;
  EXPECT_NE(of_two_ranks().find("one and the same GPU"), std::string::npos);
  EXPECT_NE(of_two_ranks().find("NCCL_MULTI_RANK_GPU_ENABLE=1, with a libnccl of 2.30 or newer"), std::string::npos);
}

TEST_F(SharedDeviceTest, a_slice_of_a_gpu_is_never_shared) {
  devices.seen = 1, devices.name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb";
  EXPECT_NE(of_two_ranks().find("a slice of a GPU (MIG), which ranks cannot share"), std::string::npos)
      << of_two_ranks();
}

// --- why there is none

TEST(NoDevice, each_reason_has_its_remedy) {
  const NoDevice old_driver{
      .said = "cudaErrorInsufficientDriver: CUDA driver version is insufficient", .driver = 12080, .wanted = 13000};
  const std::string old_text = no_device(old_driver).what();
  EXPECT_EQ(static_cast<int>(no_device(old_driver).code()), 2);
  for (const char* part :
       {"cudaErrorInsufficientDriver", "driver of CUDA 12.8, wanted CUDA 13.0", "install a driver of CUDA 13"})
    EXPECT_NE(old_text.find(part), std::string::npos) << old_text;
  NoDevice hidden{.said = "cudaErrorNoDevice", .driver = 13000, .wanted = 13000, .visible = "GPU-77", .is_set = true};
  EXPECT_NE(std::string(no_device(hidden).what()).find("CUDA_VISIBLE_DEVICES (here \"GPU-77\")"), std::string::npos);
  hidden.on_host = {"GPU-1", "GPU-2"};
  const std::string elsewhere = no_device(hidden).what();
  for (const char* part : {"CUDA_VISIBLE_DEVICES=GPU-77 shows none of the 2 of this host, which are GPU-1, GPU-2",
                           "that of another host", "leave it out"})
    EXPECT_NE(elsewhere.find(part), std::string::npos) << elsewhere;
}

TEST_F(DeviceRuntimeTest, too_few_devices_say_what_the_environment_shows) {
  set_device_runtime(&devices);
  setenv("CUDA_VISIBLE_DEVICES", "0,1,9", 1);
  const std::string message = error_of([] { use_device("cuda", 0, 3); });
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_NE(message.find("sees 2 (CUDA_VISIBLE_DEVICES=0,1,9; CUDA reads it up to the first entry"), std::string::npos)
      << message;
}

// --- who holds one, by a stand-in for the driver's library

constexpr const char* kManagement = NVIDIA_STAND_INS "/libnvidia-ml.so.1";

TEST(DeviceHolders, are_those_of_the_gpu_without_this_process_the_largest_first) {
  const auto holders = holders_of_device("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", kManagement);
  ASSERT_EQ(holders.size(), 2u);
  EXPECT_EQ(holders_text(holders), "\n   it is held by process 2147483002 (71680 MiB), process 2147483001 (1024 MiB)");
  EXPECT_TRUE(holders_of_device("GPU-ffffffff-0405-0607-0809-0a0b0c0d0e0f", kManagement).empty());
  EXPECT_TRUE(holders_of_device("00", kManagement).empty());
  EXPECT_TRUE(holders_of_device("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "/nowhere/libnvidia-ml.so.1").empty());
}

// Found under its own name, as on a machine with a driver.
TEST_F(DeviceRuntimeTest, a_full_gpu_is_out_of_memory_and_its_holders_are_named) {
  ASSERT_TRUE(dlopen(kManagement, RTLD_NOW | RTLD_LOCAL)) << dlerror();
  set_device_runtime(&devices);
  work_rank().rank = 3;
  devices.uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", devices.says = "CUDA error: out of memory";
  try {
    start_device("cuda", 1, 2);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), 4);
    for (const char* part : {"GPU 1 (test, GPU-00010203-0405-0607-0809-0a0b0c0d0e0f) of rank 3",
                             "it is held by process 2147483002 (71680 MiB), process 2147483001 (1024 MiB)",
                             "end that or take another GPU"})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(DeviceHolders, all_gpus_of_the_host_are_told) {
  EXPECT_EQ(devices_of_host(kManagement), (std::vector<std::string>{"GPU-00010203-0405-0607-0809-0a0b0c0d0e0f",
                                                                    "GPU-ffffffff-0405-0607-0809-0a0b0c0d0e0f"}));
  EXPECT_TRUE(devices_of_host("/nowhere/libnvidia-ml.so.1").empty());
  const std::string digits = "000102030405060708090a0b0c0d0e0f";
  EXPECT_EQ(uuid_text(digits, "NVIDIA H100 80GB HBM3"), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
  EXPECT_EQ(uuid_text(digits, "NVIDIA H100 80GB HBM3 MIG 1g.10gb"), "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f");
}

// --- DRIVETRAIN_NCCL

std::string said_of_given(const std::string& path) {
  try {
    open_given_library(path.c_str());
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), 2) << e.what();
    return e.what();
  }
  return "";
}

TEST(GivenLibrary, is_checked_before_anybody_uses_it) {
  const test::TempFolder folder;
  const std::string stand_ins = NVIDIA_STAND_INS "/lib";
  std::ofstream(folder / "text.so") << "no library";
  for (const auto& [path, why] : std::vector<std::pair<std::string, std::string>>{
           {"/nowhere/libnccl.so.2", "there is no such file"},
           {folder.path(), "is a folder"},
           {folder / "text.so", "cannot be opened"},
           {kManagement, "is no libnccl.so.2: it tells no version"},
           {stand_ins + "collectives_old.so", "is 2.27.3, which is too old"},
           {stand_ins + "collectives_misnamed.so", "has another name inside than libnccl.so.2"}}) {
    const std::string said = said_of_given(path);
    EXPECT_NE(said.find("DRIVETRAIN_NCCL=" + path + ": " + why), std::string::npos) << said;
    EXPECT_NE(said.find("or leave the variable out"), std::string::npos) << said;
  }
  EXPECT_EQ(said_of_given(""), "");
  open_given_library(nullptr);
  EXPECT_EQ(said_of_given(stand_ins + "collectives_new.so"), "");
  EXPECT_EQ(said_of_given(stand_ins + "collectives_new.so"), "") << "a second time";
  std::filesystem::copy_file(stand_ins + "collectives_new.so", folder / "libnccl.so.2");
  EXPECT_NE(said_of_given(folder / "libnccl.so.2").find("comes too late"), std::string::npos);
}

TEST_F(DeviceRuntimeTest, a_failed_launch_is_told_in_the_drivers_words) {
  set_device_runtime(&devices);
  check_launch(0, "norm");
  EXPECT_EQ(error_of([] { check_launch(1, "norm"); }, ErrorCode::internal),
            "norm: the launch failed with status 1 (the driver's words)");
}

// CUDA tells of a kernel that has failed at a later call, which is most often a launch of ours.
TEST_F(DeviceRuntimeTest, a_failed_device_has_its_code_and_place_where_a_launch_tells_of_it) {
  set_device_runtime(&devices);
  work_rank() = {.rank = 3, .world_size = 4, .device = 1, .step_place = [] { return std::string("step 7: backward"); }};
  const std::string id = "strategy/mine";
  for (const auto& [status, code] : std::map<int, ErrorCode>{{1, ErrorCode::internal},
                                                             {2, ErrorCode::out_of_memory},
                                                             {209, ErrorCode::plugin},
                                                             {700, ErrorCode::plugin},
                                                             {710, ErrorCode::plugin},
                                                             {714, ErrorCode::io}}) {
    const auto launch = [&] { check_launch(status, "norm"); };
    const std::string said = error_of([&] { plugin_call({id, "backward", "block.1"}, launch); }, code);
    EXPECT_EQ(said.find("in strategy/mine, hook backward, unit block.1, rank 3: "), 0u) << said;
    EXPECT_NE(said.find(concat("norm: the launch failed with status ", status)), std::string::npos) << said;
    EXPECT_EQ(said.find("GPU 1 (test, ") != std::string::npos, status != 1) << said;
    EXPECT_EQ(said.find("of rank 3, step 7: backward") != std::string::npos, status != 1) << said;
    try {  // outside of all plugins: the runtime asks at the end of a run
      launch();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& e) {
      const auto situation = situation_of(e);
      EXPECT_EQ(situation.has_value(), status != 1);
      if (situation) EXPECT_EQ(situation->code, code) << status;
    }
  }
}

}  // namespace
}  // namespace drivetrain
