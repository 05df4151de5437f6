// What a shared library wants of the insides of libdrivetrain.so. Read from its bytes; nothing of it is executed. No
// state; any thread.
#pragma once

#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

// Symbols of version DRIVETRAIN_PRIVATE, as C++ names them. They change with every build, so a plugin may link none. A
// file that cannot be read wants none: opening it says why.
DRIVETRAIN_INTERNAL std::vector<std::string> private_symbols(const std::string& path);

}  // namespace drivetrain
