// One collective on buffers of one size and origin, as `bench collectives` times it: what is called, how much that
// counts for, and whether the values are right.
//
// Bytes and factors are those of nccl-tests and of the all-reduce benchmark of the ml-engineering guide: `bytes` is the
// whole payload (of all_gather the gathered size, of reduce_scatter the size before it), and bandwidth on the bus is
// bytes / time times a factor that makes collectives and numbers of ranks comparable with the speed of the hardware.
#pragma once

#include <drivetrain/communicator.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "internal.h"

namespace drivetrain {

// "all_reduce", "all_gather", ...: in the order in which they are timed.
DRIVETRAIN_INTERNAL const std::vector<std::string>& collective_names();
// Error(config) for a name that is none of them.
DRIVETRAIN_INTERNAL double bus_factor(const std::string& collective, int64_t ranks);

// "4096", "64K", "32M", "1G" (powers of 1024). Error(config) names `option`.
DRIVETRAIN_INTERNAL int64_t bytes_of_text(const std::string& option, const std::string& text);
// From `from` in steps of four, and `to` itself.
DRIVETRAIN_INTERNAL std::vector<int64_t> payload_sizes(int64_t from, int64_t to);

enum class BufferKind {
  mapped,    // Group::allocate
  private_,  // any other tensor of the device
  once       // Group::allocate_once, where a rank's input is its own slice of it: all_gather only
};
DRIVETRAIN_INTERNAL const char* buffer_name(BufferKind kind);

// Owns its buffers, keeps the group. Every rank makes the same cases and calls in the same order. Thread: that of the
// group.
class DRIVETRAIN_INTERNAL CollectiveCase {
 public:
  // float32; `bytes` is rounded down to what every rank has an equal share of, at least one element each.
  CollectiveCase(const std::string& collective, BufferKind kind, int64_t bytes, GroupPtr group,
                 const at::Device& device);

  bool exists() const { return out_.defined(); }  // false: this group has no such memory
  const std::string& collective() const { return collective_; }
  BufferKind kind() const { return kind_; }
  int64_t bytes() const { return elements_ * 4; }

  void call();   // once, waited for
  void check();  // fills the buffers, calls once and compares every element; Error(communication) if one is wrong

 private:
  void make_buffers();
  at::Tensor buffer(int64_t elements) const;
  at::Tensor own_slice(const at::Tensor& whole) const;
  std::string text() const;

  std::string collective_;
  BufferKind kind_;
  GroupPtr group_;
  at::Device device_;
  int64_t elements_;
  at::Tensor in_, out_;  // the same one for calls in place
};

}  // namespace drivetrain
