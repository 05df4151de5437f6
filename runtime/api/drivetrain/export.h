// What every header of the contract says about itself.
#pragma once

// Marks what libdrivetrain.so exports.
#define DRIVETRAIN_API __attribute__((visibility("default")))

// DRIVETRAIN_CONTRACT(mesh) stands in mesh.h: whatever is compiled with it says so in the section .drivetrain.headers
// of its object file, and the linker gathers the sections. So a library lists the headers that its sources really
// reach, and the runtime compares these alone (fingerprint.h).
#define DRIVETRAIN_HEADER_NAME_(HEADER) #HEADER ".h"
#define DRIVETRAIN_CONTRACT(HEADER)                                                                                   \
  __attribute__((section(".drivetrain.headers"), used, retain)) static constexpr char drivetrain_reaches_##HEADER[] = \
      DRIVETRAIN_HEADER_NAME_(HEADER);
