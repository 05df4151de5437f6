// The memory of a computation, told in the order in which it takes and frees tensors: what planned_memory.h asks of
// units and attention. A trace stands beside the code that it is about and reads like it. Thread: any.
#pragma once

#include <drivetrain/planned_memory.h>

namespace drivetrain {

class MemoryTrace {
 public:
  MemoryTrace& take(double bytes, double count = 1) { return change(TensorSizes().add(bytes, count)); }
  MemoryTrace& take(const TensorSizes& tensors) { return change(tensors); }
  // What was kept from before may be freed too: then there is less than at the beginning.
  MemoryTrace& free(double bytes, double count = 1) { return change(TensorSizes().add(bytes, -count)); }
  MemoryTrace& free(const TensorSizes& tensors) { return change(TensorSizes().add(tensors, -1)); }
  // Taken and freed again by one step.
  MemoryTrace& moment(const TensorSizes& tensors) { return take(tensors).free(tensors); }
  MemoryTrace& moment(double bytes, double count = 1) { return moment(TensorSizes().add(bytes, count)); }

  // When there was most of it, beside what there was at the beginning.
  const TensorSizes& most() const { return most_; }

 private:
  MemoryTrace& change(const TensorSizes& by) {
    now_.add(by);
    if (now_.bytes() > most_.bytes()) most_ = now_;
    return *this;
  }
  TensorSizes now_, most_;
};

}  // namespace drivetrain
