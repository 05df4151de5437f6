// Are there enough file descriptors for a run? Asked before anything is started: a rank that runs out of them fails
// wherever it happens to be, if it can say so at all.
#pragma once

#include <cstddef>
#include <string>

namespace drivetrain::program {

// What each process of a run with that many ranks may have open, and its launcher with that many hosts over ssh.
long open_files_wanted(int ranks, size_t hosts = 0);

// Raises this process's own limit as far as it may, which ranks inherit. What is wrong, with figure and remedy; empty
// if nothing is.
std::string make_room_for_open_files(int ranks, size_t hosts = 0);

}  // namespace drivetrain::program
