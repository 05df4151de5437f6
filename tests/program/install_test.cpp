// The install tree on another machine: copied elsewhere, with libraries of its own, checked by tools/gpu_check.
#include <memory>

#include <drivetrain/value.h>
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;

class Installed : public ProgramTest {
 protected:
  // Installed in one folder, used from others: once for all tests, each of which has the files under names of its own,
  // as stripping all libraries takes longer than what is tested.
  static void SetUpTestSuite() {
    install_ = std::make_unique<TempFolder>();
    const std::string install = "cmake --install " DRIVETRAIN_BUILD_DIR " --strip --prefix " + install_->path("first");
    for (const std::string& command : {install, install + " --component gpu_tests"}) {
      const Ran ran = run_shell(command);
      ASSERT_EQ(ran.code, 0) << ran.output;
    }
    fs::rename(install_->path("first"), install_->path("second"));
  }
  static void TearDownTestSuite() { install_.reset(); }
  Installed() {
    const Ran ran = run_shell("cp -al " + install_->path("second") + " " + path("moved"));
    EXPECT_EQ(ran.code, 0) << ran.output;
  }
  std::string moved(const std::string& name) const { return path("moved/" + name); }
  void remove_what_checks_do_not_need() const {
    const Ran ran = run_shell("cd " + path("moved") + " && rm -r lib/*.a include bin/drivetrain-conformance " +
                              "lib/drivetrain/commands/study.so");
    EXPECT_EQ(ran.code, 0) << ran.output;
  }

  inline static std::unique_ptr<TempFolder> install_;
};

TEST_F(Installed, trains_elsewhere_with_the_libraries_it_carries) {
  const Ran ran = run_shell("cd " + folder() + " && LD_DEBUG=libs LD_DEBUG_OUTPUT=" + path("libraries") + " " +
                            moved("bin/drivetrain") + " train " + path("tiny.json"));
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_EQ(read_metrics(path("run")).size(), 5);
  std::string opened;
  for (const auto& entry : fs::directory_iterator(folder()))
    if (entry.path().filename().string().rfind("libraries.", 0) == 0) opened += file_bytes(entry.path());
  const std::string by_program = moved("bin/../lib/");  // what the program itself links
  for (size_t at = opened.find(by_program); at != std::string::npos; at = opened.find(by_program))
    opened.replace(at, by_program.size(), moved("lib/"));
  for (const char* name :
       {"libdrivetrain.so", "libdrivetrain_kernels.so", "libtbb.so.12", "libspdlog.so", "libfmt.so", "libcrypto.so.3"})
    EXPECT_NE(opened.find("calling init: " + moved("lib/") + name), std::string::npos) << name;
  for (const char* name : {"/libtbb", "/libspdlog", "/libfmt", "/libcrypto"})
    EXPECT_EQ(opened.find(std::string("calling init: /lib/x86_64-linux-gnu") + name), std::string::npos) << name;
}

// Without what plugins are written with, and studies: a machine that runs the checks has use for neither
// (tools/README.md).
TEST_F(Installed, fits_what_such_a_machine_takes) {
  remove_what_checks_do_not_need();
  uintmax_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(path("moved")))
    if (entry.is_regular_file() && !entry.is_symlink()) bytes += entry.file_size();
  EXPECT_LT(bytes, 64 << 20);
}

// A plugin that is compiled with it would carry the digest of the header that was installed, and another layout.
TEST_F(Installed, a_header_that_was_edited_by_hand_is_found_by_doctor_and_by_cmake) {
  write("project/CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.25)\nproject(x LANGUAGES NONE)\n"
        "find_package(Drivetrain 0.1 REQUIRED)\n");
  const std::string doctor = "cd " + folder() + " && " + moved("bin/drivetrain") + " doctor";
  expect_says(run_shell(doctor).output, {"headers", "as they were installed"});
  const std::string header = moved("include/drivetrain/optimizer.h"), text = file_bytes(header);
  fs::remove(header);  // the files of other tests are the same
  write("moved/include/drivetrain/optimizer.h", text + "// more\n");
  const Ran edited = run_shell(doctor);
  EXPECT_NE(edited.code, 0) << edited.output;
  expect_says(edited.output, {"headers", "optimizer.h", "install again"});
  const Ran configured = run_shell("cd " + path("project") + " && cmake -B build -DCMAKE_PREFIX_PATH=" + path("moved"));
  EXPECT_NE(configured.code, 0);
  expect_says(configured.output, {"optimizer.h", "SHA-256"});
}

TEST_F(Installed, gpu_check_finds_everything_there_and_startable) {
  remove_what_checks_do_not_need();
  const Ran ran = run_shell("cd " + folder() + " && DRIVETRAIN_TORCH=" DRIVETRAIN_TORCH_FOLDER " python3 " +
                            moved("tools/gpu_check") + " --dry-run --limit 0 --logs " + path("logs"));
  if (!fs::exists(moved("lib/libdrivetrain_cuda.so"))) {  // built without nvcc: it says so and fails
    EXPECT_EQ(ran.code, 1) << ran.output;
    return;
  }
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output,
              {"| check | result | figures |", "live / train: configs | starts", "right / paths: configs | starts",
               "long / long: configs | starts", "train: float32, 2 ranks | starts", "tests: device_gpu_test | starts",
               "not run: \"device\": \"cuda\"", "bench: llama_7b_gpu | starts", "paths: recompute offload | starts",
               "errors: no GPU visible | starts", "sanitizer: racecheck kernels_", "profile: gpt2_124m_gpu | starts",
               "peer: llama_7b_gpu | starts", "everything is there and starts"});
}

TEST_F(Installed, gpu_check_fails_where_something_is_missing_or_there_is_no_gpu) {
  fs::remove(moved("configs/bench/llama_7b_gpu.json"));
  const std::string check = "cd " + folder() +
                            " && CUDA_VISIBLE_DEVICES= DRIVETRAIN_TORCH=" DRIVETRAIN_TORCH_FOLDER " python3 " +
                            moved("tools/gpu_check") + " --logs " + path("logs");
  const Ran dry = run_shell(check + " --dry-run --only bench");
  EXPECT_EQ(dry.code, 1) << dry.output;
  expect_says(dry.output, {"bench: llama_7b_gpu | FAILED", "llama_7b_gpu.json is not there", " failed\n"});
  fs::remove_all(path("logs"));
  for (const auto& entry : fs::directory_iterator(moved("tests")))  // one of them is enough
    if (entry.path().filename().string() != "device_gpu_test" && entry.is_regular_file()) fs::remove(entry.path());
  const Ran real = run_shell(check + " --stage live --only train --only tests --only machine");
  EXPECT_EQ(real.code, 1) << real.output;
  expect_says(real.output,
              {"machine: GPU and driver | FAILED | nvidia-smi finds no GPU",
               "device_gpu_test | FAILED | nothing was tested", "train: float32, recorded | FAILED | exit "});
}

}  // namespace
}  // namespace drivetrain::test
