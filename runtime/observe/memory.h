// Memory figures of this process.
#pragma once

namespace drivetrain {

// Largest resident set so far, in bytes. Ranks that are threads of one process report the same.
double peak_memory_bytes();

}  // namespace drivetrain
