// `drivetrain agent`: what the launcher runs on another host, over ssh. It starts the ranks of its host, passes their
// output on, tells how they end, and ends them when it is told to or when nobody is there any more: the connection was
// closed, or the network does not answer. Its words and orders are hosts/message.h, on stdout and stdin.
#pragma once

namespace drivetrain::program {

// For a process without other threads and children. Returns its exit code.
int agent();

}  // namespace drivetrain::program
