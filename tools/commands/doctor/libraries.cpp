#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <set>

#include <drivetrain/toolkit/text.h>

#include "base/trust.h"
#include "contract/device_runtime.h"
#include "device/open_device.h"
#include "doctor/checks.h"
#include "plugin/manifest_reader.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

std::string field_of(const Value& fingerprint, const char* field) {
  const Value* const value = fingerprint.find(field);
  return !value ? "" : value->is_string() ? value->as_string() : value->to_json();
}

// Of this program's files, by their bytes, so that hosts can be compared.
void look_at_own_files(Findings& findings, const Value& fingerprint) {
  const fs::path root = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  std::set<std::string> names{"bin/drivetrain"};
  std::error_code unreadable;
  for (const std::string folder : {"lib/", "lib/drivetrain/commands/"})
    for (const fs::directory_entry& entry : fs::directory_iterator(root / folder, unreadable)) {
      const std::string name = entry.path().filename();
      const bool ours = folder != "lib/" || name.starts_with("libdrivetrain");
      if (ours && name.ends_with(".so")) names.insert(folder + name);
    }
  findings.fact("release", field_of(fingerprint, "sdk"));
  findings.attempt("program", [&] {
    Value digests = Value::object();
    for (const std::string& name : names) digests.set(name, sha256(read_bytes(root / name)));
    findings.fact("files", std::move(digests));
  });
}

// Plugins that are compiled with a header that was edited since carry the digest of the one that was installed.
void look_at_headers(Findings& findings) {
  const fs::path headers = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "include/drivetrain";
  std::ifstream sums(headers / "headers.sha256");
  if (!sums) return;  // not installed, but built
  std::string edited;
  int64_t count = 0;
  for (std::string sum, name; sums >> sum >> name; ++count) {
    std::error_code unknown;
    const bool same = fs::is_regular_file(headers / name, unknown) && sha256(read_bytes(headers / name)) == sum;
    if (!same) edited += (edited.empty() ? "" : ", ") + name;
  }
  if (edited.empty())
    return findings.ok("headers", concat(count, " in ", headers.string(), ", as they were installed"));
  findings.problem(
      "headers",
      concat(edited, " in ", headers.string(), ": not as installed, or missing; plugins built with it do not fit"),
      "install again: cmake --install BUILD --prefix PREFIX; then build plugins again");
}

// The release that the build was made for was compared by the program; another build of it is not known to fit.
void look_at_torch(Findings& findings, const Value& fingerprint) {
  const std::string folder = torch_folder(), built = field_of(fingerprint, "libtorch_build_id");
  const std::string found = read_manifest((fs::path(folder) / "lib/libtorch_cpu.so").string()).build_id;
  const std::string text = concat(field_of(fingerprint, "libtorch"), ", ", folder);
  findings.fact("libtorch", field_of(fingerprint, "libtorch"));
  findings.fact("libtorch_build_id", found);
  if (found.empty() || built == "none" || found == built) return findings.ok("LibTorch", text);
  findings.warning("LibTorch",
                   concat(text, "; it is another build than the one that this program was made with (",
                          found.substr(0, 16), ", not ", built.substr(0, 16), ")"),
                   "use the torch wheel of PyPI, or build this program again with DRIVETRAIN_TORCH=" + folder);
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  ..."
std::string driver_line() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  const size_t colon = line.find(':');
  return colon == std::string::npos ? "" : line.substr(std::min(line.find_first_not_of(' ', colon + 1), line.size()));
}

// LibTorch's word for the release of the collectives library that it brings: major, minor, patch in 16 bits each.
constexpr const char* kCollectivesVersion = "_ZN5torch4cuda4nccl7versionEv";

void look_at_collectives(Findings& findings, const Value& fingerprint) {
  const auto version = reinterpret_cast<uint64_t (*)()>(dlsym(RTLD_DEFAULT, kCollectivesVersion));
  if (!version) return findings.ok("collectives", "this LibTorch does not tell the release of its library");
  const uint64_t found = version(), major = found >> 32;
  const std::string text = concat(major, ".", found >> 16 & 0xffff, ".", found & 0xffff, ", of LibTorch"),
                    built = field_of(fingerprint, "nccl_major");
  findings.fact("collectives", concat(major, ".", found >> 16 & 0xffff, ".", found & 0xffff));
  if (concat(major) == built) return findings.ok("collectives", text);
  findings.problem("collectives", concat(text, "; plugins are built for ", built, " (nccl_major)"),
                   "use the libraries that come with this LibTorch, or build the plugins again");
}

void look_at_devices(Findings& findings, const Value& fingerprint, bool wanted) {
  const std::string driver = driver_line();
  std::error_code unknown;
  if (driver.empty() && !fs::exists("/dev/nvidia0", unknown) && !wanted)
    return findings.ok("GPU", "none: neither a driver of NVIDIA's nor a device is there; runs use \"device\": \"cpu\"");
  findings.ok("driver", driver.empty() ? "/proc/driver/nvidia/version does not tell" : driver);
  findings.fact("driver", driver);
  findings.attempt("GPU", [&] {
    open_device("cuda");
    Value gpus = Value::array();
    for (int64_t i = 0; i < device_runtime()->count(); ++i) {
      const DeviceFacts facts = device_runtime()->facts(i);
      findings.ok(concat("GPU ", i),
                  concat(facts.name, ", sm_", facts.arch, ", ", bytes_text(static_cast<double>(facts.memory_bytes))));
      gpus.items().emplace_back(facts.name);
    }
    findings.fact("gpus", std::move(gpus)), findings.fact("cuda", field_of(fingerprint, "cuda_runtime"));
    findings.ok("CUDA", concat("runtime ", field_of(fingerprint, "cuda_runtime"), ", of LibTorch"));
    look_at_collectives(findings, fingerprint);
  });
}

}  // namespace

void look_at_libraries(Findings& findings, const std::string& device) {
  findings.begin("libraries");
  const Value fingerprint = runtime_fingerprint();
  findings.ok("drivetrain", concat(field_of(fingerprint, "sdk"), ", ", field_of(fingerprint, "compiler")));
  look_at_own_files(findings, fingerprint);
  look_at_headers(findings);
  look_at_torch(findings, fingerprint);
  look_at_devices(findings, fingerprint, device == "cuda");
}

}  // namespace drivetrain
