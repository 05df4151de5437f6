// The two macros that every contract header uses: what is exported, and which headers a library includes.
#pragma once

// Marks what libdrivetrain.so exports.
#define DRIVETRAIN_API __attribute__((visibility("default")))

// mesh.h contains DRIVETRAIN_CONTRACT(mesh). Every object file that includes mesh.h gets its name in the section
// .drivetrain.headers, and the linker joins the sections. So a library lists the headers that its sources include, and
// the runtime compares only these (fingerprint.h).
#define DRIVETRAIN_HEADER_NAME_(HEADER) #HEADER ".h"
#define DRIVETRAIN_CONTRACT(HEADER)                                                                                   \
  __attribute__((section(".drivetrain.headers"), used, retain)) static constexpr char drivetrain_reaches_##HEADER[] = \
      DRIVETRAIN_HEADER_NAME_(HEADER);
