// `drivetrain new-plugin KIND NAME [--dir DIR]`: a folder with a plugin that builds, passes the suite of its kind and
// trains, for its author to change. Needs neither LibTorch nor the library. Main thread.
#pragma once

#include "cli/arguments.h"

namespace drivetrain::kit {

// Makes DIR/NAME, or nothing, and prints the next commands. Throws KitError; a folder that is there is never touched.
int new_plugin(const cli::Arguments& arguments);

}  // namespace drivetrain::kit
