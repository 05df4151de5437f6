// Copies between host and device on a stream of their own, beside what the device computes. On the CPU they are made at
// once.
//
// Memory: what a copy touches is allocated on the caller's stream, before `run`, and is either kept until after `join`
// or told by `reads` (a tensor that may be freed earlier). Thread: one at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <functional>
#include <memory>
#include <optional>

namespace drivetrain {

class CopyStream {
 public:
  // The end of copies that were enqueued.
  class Moment {
   public:
    Moment() = default;
    // The current stream waits for them; the host does not. Nothing to wait for: returns at once. Any number of times.
    void join() const;

   private:
    friend class CopyStream;
    std::shared_ptr<c10::Event> event_;
    at::Device device_ = at::Device(at::kCPU);
  };

  // Runs `enqueue` with the copy stream of `device` as the current one, behind all that the current stream holds.
  Moment run(const at::Device& device, const std::function<void()>& enqueue);
  // Inside `enqueue`: the memory of `t`, which the caller may free before `join`, is not used again until the copies
  // are done.
  void reads(const at::Tensor& t) const;

 private:
  std::optional<c10::Stream> stream_;
};

}  // namespace drivetrain
