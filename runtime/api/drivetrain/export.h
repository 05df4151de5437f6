// Marks what libdrivetrain.so exports. Everything else is compiled hidden.
#pragma once

#define DRIVETRAIN_API __attribute__((visibility("default")))
