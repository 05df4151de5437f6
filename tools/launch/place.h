// The ranks that one process starts, where the run has others too, and where rank 0 listens.
#pragma once

#include <string>

namespace drivetrain::program {

struct Place {
  int first = 0;                 // RANK of the first one here
  int here = 0;                  // how many are started here; 0: all of the run
  int local = 0;                 // LOCAL_RANK of the first one here
  int of_host = 0;               // LOCAL_WORLD_SIZE; 0: as many as are here
  std::string master_addr = "";  // "": 127.0.0.1 and a free port of it
  int master_port = 0;
  int listener = -1;       // a socket that listens there, where rank 0 is started here
  bool listens = true;     // it does so before any rank starts
  std::string token = "";  // of the run; "": a new one, or that of the environment if other processes start ranks too
  bool has_others() const { return here != 0; }
};

}  // namespace drivetrain::program
