// `launch --copy FOLDER`: brings the install tree and the config to hosts that do not have them, by tar and ssh. On
// each host FOLDER/drivetrain-RELEASE-DIGEST has the tree and FOLDER/configs/DIGEST the config; both stay there, and
// the next launch finds the tree. What lies there with other contents is left alone. Before anything is brought all
// hosts are asked whether FOLDER is this user's to write.
// Relative paths in the config begin in the folder that it came from, as if it lay there, which ranks are told. A
// signal ends the copies, and what they have half written goes.
#pragma once

#include "launch/request.h"

namespace drivetrain::program {

// To all hosts of the request and those that stand by, if it asks for that; `request` names the copies then. Returns 0,
// or the exit code after it has named every host that cannot have them. With --dry-run it prints the commands only.
int copy_to_hosts(LaunchRequest& request);

}  // namespace drivetrain::program
