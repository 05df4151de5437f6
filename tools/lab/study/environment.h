// Where a study runs, for its report, and so that studies of different machines are not compared by accident.
#pragma once

#include <string>

#include <drivetrain/value.h>

namespace drivetrain::study {

// {"host", "cpu", "cores", "memory_bytes", "kernel", "gpus", "libtorch", "release", "build"}
Value environment_now(const std::string& build);

std::string time_now();   // "2026-11-23T22:10:05Z"
std::string host_name();  // of this one

}  // namespace drivetrain::study
