// Memory that calls use one after the other, and calls at the same time one each.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace drivetrain {

template <class Work>
class Pool {
 public:
  // Belongs to who took it, and goes back when it is destroyed; the pool outlives it.
  class Taken {
   public:
    Taken(Pool& pool, std::unique_ptr<Work> work) : pool_(pool), work_(std::move(work)) {}
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    ~Taken() {
      const std::lock_guard lock(pool_.mutex_);
      pool_.free_.push_back(std::move(work_));
    }
    Work& operator*() const { return *work_; }
    Work* operator->() const { return work_.get(); }

   private:
    Pool& pool_;
    std::unique_ptr<Work> work_;
  };

  // One that is free, or a new one. From any thread.
  Taken take() {
    std::unique_ptr<Work> work;
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) work = std::move(free_.back()), free_.pop_back();
    }
    if (!work) work = std::make_unique<Work>();
    return Taken(*this, std::move(work));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Work>> free_;  // under mutex_
};

}  // namespace drivetrain
