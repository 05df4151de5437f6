// The two halves of a sum over ranks, piece by piece: SliceSum brings the summands of a rank's slice together, Spread
// takes results to everybody.
//
// What goes to another host goes once. Of a slice whose owner is there, the ranks of this host give theirs to one of
// them (Hosts::relay), which sends the sums over this host's members; a result goes to one rank of each other host,
// which passes it on. Without hosts that hold several members all this is one message between each two ranks.
//
// Ownership: buffers are the caller's until all requests are done. Thread: under the carrier's mutex. Errors: none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "wire.h"

namespace drivetrain::toolkit::messages {

// By the fixed tree.
void add_sources(const Call& call, char* out, const std::vector<const void*>& sources, int64_t bytes);

// How a buffer is cut: rank p adds slice p, in pieces. Bytes.
struct Cut {
  int64_t total, slice, piece;

  int64_t pieces() const { return slice == 0 ? 0 : (slice + piece - 1) / piece; }
  int64_t begin(int p, int64_t k) const;
  int64_t length(int p, int64_t k) const { return begin(p, k + 1) - begin(p, k); }
};

// The sum of one piece of this rank's slice, and this rank's part in those of others.
class SliceSum {
 public:
  SliceSum(const Wire& wire, const Cut& cut, const Call& call);

  void post(const char* in, int64_t k);  // nothing where there is no such piece
  Requests& near() { return near_; }     // what comes from this host
  void send_parts();                     // once `near` is here
  Requests& parts() { return parts_; }   // what comes from other hosts
  void add(char* out);                   // once both are here
  // What this rank sends, in this order: members of this host wait for each other until each has let go of what it saw.
  Requests& sent_parts() { return sent_parts_; }
  void let_go();
  Requests& sent_near() { return sent_near_; }

 private:
  // A slice whose summands on this host come to this rank: its own, or one whose owner is on another host.
  struct Target {
    int member = 0;
    std::vector<TransferPtr> from;  // of each member of this host; null: this rank
    std::vector<char*> rooms;       // for what does not stay where it lies
    std::vector<char*> sums;        // of the nodes of this host, in their order
  };
  int here() const { return wire_.hosts.of(wire_.me); }
  int host_of(int node) const { return wire_.hosts.of(node << level_); }
  Target* target_of(int member);
  void make_rooms();
  size_t place_of(int member) const;  // on this host
  const char* summand(const Target& target, int member) const;
  const char* node_sum(Target& target, size_t index) const;

  const Wire& wire_;
  const Cut cut_;
  const Call& call_;
  const int level_;
  int64_t k_ = 0;
  const char* in_ = nullptr;
  std::vector<Target> targets_;
  std::vector<int> nodes_here_;
  std::vector<char*> from_hosts_;  // of each node: where its sum comes to; null: a node of this host
  std::shared_ptr<char> scratch_;
  Requests near_, parts_, sent_parts_, sent_near_;
};

// Piece k of every rank's slice, from its owner to everybody.
class Spread {
 public:
  Spread(const Wire& wire, const Cut& cut, char* data);

  void post(int64_t k);                                         // this rank's own is there
  Requests& from_hosts(int64_t k) { return at(k).from_hosts; }  // what this rank passes on
  void relay(int64_t k);                                        // once it is here
  Requests& rest(int64_t k) { return at(k).rest; }

 private:
  struct Piece {
    Requests from_hosts, rest;
  };
  Piece& at(int64_t k) const { return pieces_[static_cast<size_t>(k)]; }

  const Wire& wire_;
  const Cut cut_;
  char* const data_;
  const std::unique_ptr<Piece[]> pieces_;
};

}  // namespace drivetrain::toolkit::messages
