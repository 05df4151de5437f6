// Memory of a process where several mappings share it, and what the CPU's allocator counts for a tensor.
#include "observe/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <cstring>

#include "memory/cpu_allocator.h"

namespace drivetrain {
namespace {

constexpr size_t kBytes = size_t{64} << 20;

// An anonymous file of shared memory.
struct SharedBytes {
  SharedBytes() : fd(memfd_create("test", MFD_CLOEXEC)) {
    if (ftruncate(fd, kBytes) != 0) ADD_FAILURE() << "ftruncate";
  }
  ~SharedBytes() { close(fd); }
  // Touches every page.
  char* map() const {
    void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) ADD_FAILURE() << "mmap";
    std::memset(at, 1, kBytes);
    return static_cast<char*>(at);
  }
  int fd;
};

TEST(ProcessMemory, a_page_mapped_twice_counts_once) {
  const double peak = peak_memory_bytes(), share = shared_memory_bytes();
  const SharedBytes file;
  char* const first = file.map();
  char* const second = file.map();
  EXPECT_NEAR(shared_memory_bytes() - share, kBytes, 0.01 * kBytes);
  EXPECT_NEAR(peak_memory_bytes() - peak, kBytes, 0.2 * kBytes);
  munmap(first, kBytes), munmap(second, kBytes);
}

TEST(ProcessMemory, a_page_that_another_process_maps_too_counts_half) {
  const SharedBytes file;
  const double share = shared_memory_bytes();
  char* const at = file.map();
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  if (fork() == 0) {
    char word = 0;
    std::memset(at, 2, kBytes);
    if (write(ready[1], &word, 1) != 1 || read(done[0], &word, 1) != 1) _exit(1);
    _exit(0);
  }
  char word = 0;
  ASSERT_EQ(read(ready[0], &word, 1), 1);
  EXPECT_NEAR(shared_memory_bytes() - share, kBytes / 2.0, 0.01 * kBytes);
  ASSERT_EQ(write(done[1], &word, 1), 1);
  munmap(at, kBytes);
}

TEST(ProcessMemory, the_peak_stays_when_memory_of_its_own_is_given_back) {
  const double before = peak_memory_bytes();
  void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(at, 1, kBytes);
  const double with = peak_memory_bytes();
  munmap(at, kBytes);
  EXPECT_GT(with, before);
  EXPECT_GE(peak_memory_bytes(), with);
}

TEST(SharedMappings, names_the_same_memory_equally_wherever_it_is_mapped) {
  const SharedBytes file, other;
  char *const first = file.map(), *const second = file.map(), *const third = other.map();
  const SharedMappings mappings;
  EXPECT_FALSE(mappings.place(first).empty());
  EXPECT_EQ(mappings.place(first), mappings.place(second));
  EXPECT_EQ(mappings.place(first + 4097), mappings.place(second + 4097));
  EXPECT_NE(mappings.place(first), mappings.place(second + 4097));
  EXPECT_NE(mappings.place(first), mappings.place(third));
  for (char* at : {first, second, third}) munmap(at, kBytes);
}

TEST(SharedMappings, memory_of_one_s_own_has_no_place) {
  const std::string text(100000, 'x');
  const SharedMappings mappings;
  EXPECT_EQ(mappings.place(text.data()), "");
  EXPECT_EQ(mappings.place(nullptr), "");
  EXPECT_EQ(mappings.place(&mappings), "");
}

TEST(CpuMemoryOf, is_what_the_allocator_counts) {
  install_cpu_allocator();
  const int64_t before = cpu_memory().in_use;
  const at::Tensor large = at::zeros({300000}, at::TensorOptions().dtype(at::kFloat)), small = at::zeros({10});
  EXPECT_GE(cpu_memory_of(large.storage().data_ptr()), int64_t{1200000});
  EXPECT_EQ(cpu_memory_of(large.storage().data_ptr()), cpu_memory().in_use - before);
  EXPECT_EQ(cpu_memory_of(small.storage().data_ptr()), 0);
  float foreign[4] = {};
  EXPECT_EQ(cpu_memory_of(at::from_blob(foreign, {4}).storage().data_ptr()), 0);
}

}  // namespace
}  // namespace drivetrain
