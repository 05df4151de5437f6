#include "memory/pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace drivetrain {
namespace {

constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kWorthIt = 4 * kHuge;  // below, the last page that is not filled weighs more than what is won

void* map_plain(size_t bytes) {
  void* begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return begin == MAP_FAILED ? nullptr : begin;
}

}  // namespace

void* map_pages(size_t bytes) {
  if (bytes < kWorthIt) return map_plain(bytes);
  // Only whole, aligned pages become huge: what is before and behind the aligned part goes back at once.
  auto* all = static_cast<char*>(map_plain(bytes + kHuge));
  if (!all) return map_plain(bytes);
  const size_t before = (kHuge - reinterpret_cast<uintptr_t>(all) % kHuge) % kHuge;
  if (before > 0) munmap(all, before);
  if (before < kHuge) munmap(all + before + bytes, kHuge - before);
  madvise(all + before, bytes, MADV_HUGEPAGE);  // a wish: without huge pages it is slower, not wrong
  return all + before;
}

void unmap_pages(void* begin, size_t bytes) { munmap(begin, bytes); }

}  // namespace drivetrain
