#include "process/own_threads.h"

#include <unistd.h>

#include <array>
#include <atomic>

namespace drivetrain {
namespace {

constexpr int kMostThreads = 64;  // those beyond count as anybody's
std::array<std::atomic<int>, kMostThreads> threads{};

}  // namespace

OwnThread::OwnThread() {
  const int own = gettid();
  for (int i = 0; i < kMostThreads && place_ < 0; ++i) {
    int free = 0;
    if (threads[static_cast<size_t>(i)].compare_exchange_strong(free, own)) place_ = i;
  }
}

OwnThread::~OwnThread() {
  if (place_ >= 0) threads[static_cast<size_t>(place_)] = 0;
}

bool is_own_thread(int thread) {
  for (const std::atomic<int>& one : threads)
    if (one == thread) return true;
  return false;
}

}  // namespace drivetrain
