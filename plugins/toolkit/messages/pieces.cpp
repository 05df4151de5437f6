#include "pieces.h"

#include <drivetrain/toolkit/communicator/sum_type.h>

#include <algorithm>

#include "kernels/collective/tree_sum.h"

namespace drivetrain::toolkit::messages {

void add_sources(const Call& call, char* out, const std::vector<const void*>& sources, int64_t bytes) {
  static_assert(static_cast<int>(SumType::i64) == static_cast<int>(kernels::SumType::i64));
  const auto type = static_cast<kernels::SumType>(*sum_type(call.dtype));
  kernels::tree_sum_cpu({sources.data(), out, static_cast<int64_t>(sources.size()), type}, 0,
                        bytes / call.element_bytes());
}

int64_t Cut::begin(int p, int64_t k) const { return std::min(total, std::min((p + 1) * slice, p * slice + k * piece)); }

// Sums of bfloat16 and float16 are rounded at the end only, so parts of them cannot be: all summands travel. On one
// host there is nothing to send, and one sum over all is less work than a sum of sums.
int level_of(const Wire& wire, const Call& call) {
  const bool rounded = call.dtype == at::kBFloat16 || call.dtype == at::kHalf;
  return rounded || wire.hosts.count() == 1 ? 0 : wire.hosts.level();
}

// ---- SliceSum ----

SliceSum::SliceSum(const Wire& wire, const Cut& cut, const Call& call)
    : wire_(wire), cut_(cut), call_(call), level_(level_of(wire, call)) {
  for (int member = 0; member < wire.size; ++member) {
    if (wire.hosts.relay(here(), member) != wire.me) continue;
    targets_.emplace_back().member = member;
    targets_.back().from.resize(wire.hosts.on(here()).size());
  }
  const int nodes = (wire.size + (1 << level_) - 1) >> level_;
  from_hosts_.resize(static_cast<size_t>(nodes));
  for (int node = 0; node < nodes; ++node)
    if (host_of(node) == here()) nodes_here_.push_back(node);
  make_rooms();
}

void SliceSum::make_rooms() {
  const std::vector<int>& members = wire_.hosts.on(here());
  const int64_t room = (std::min(cut_.piece, cut_.slice) + 63) / 64 * 64;
  const size_t summed = level_ > 0 ? nodes_here_.size() : 0, sent = from_hosts_.size() - nodes_here_.size();
  const size_t rooms = targets_.size() * (members.size() - 1 + summed) + sent;
  scratch_ = wire_.scratch->take(rooms * static_cast<size_t>(room));
  char* next = scratch_.get();
  const auto take = [&] { return std::exchange(next, next + room); };
  for (Target& target : targets_) {
    for (const int member : members) target.rooms.push_back(member == wire_.me ? nullptr : take());
    for (size_t i = 0; i < summed; ++i) target.sums.push_back(take());
  }
  for (size_t node = 0; node < from_hosts_.size(); ++node)
    if (host_of(static_cast<int>(node)) != here()) from_hosts_[node] = take();
}

SliceSum::Target* SliceSum::target_of(int member) {
  const auto found =
      std::find_if(targets_.begin(), targets_.end(), [member](const Target& t) { return t.member == member; });
  return found == targets_.end() ? nullptr : &*found;
}

// Step by step another member, so that not all ranks send to the same one; of two ranks both go the same way.
void SliceSum::post(const char* in, int64_t k) {
  near_.clear(), parts_.clear(), sent_parts_.clear(), sent_near_.clear();
  if (k >= cut_.pieces()) return;
  in_ = in, k_ = k;
  const std::vector<int>& members = wire_.hosts.on(here());
  for (size_t i = 0; i < members.size(); ++i)
    for (int step = 1; step < wire_.size && members[i] != wire_.me; ++step) {
      const int member = (members[i] + step) % wire_.size;
      Target* const target = target_of(member);
      if (target == nullptr || cut_.length(member, k) == 0) continue;
      target->from[i] = wire_.look(near_, target->rooms[i], cut_.length(member, k), members[i], kSlices);
    }
  for (size_t node = 0; node < from_hosts_.size(); ++node)
    if (char* const room = from_hosts_[node])
      wire_.recv(parts_, room, cut_.length(wire_.me, k), wire_.hosts.relay(host_of(static_cast<int>(node)), wire_.me),
                 kParts);
  for (int step = 1; step < wire_.size; ++step) {
    const int member = (wire_.me + step) % wire_.size, relay = wire_.hosts.relay(here(), member);
    if (relay != wire_.me) wire_.send(sent_near_, in + cut_.begin(member, k), cut_.length(member, k), relay, kSlices);
  }
}

size_t SliceSum::place_of(int member) const {
  const std::vector<int>& members = wire_.hosts.on(here());
  return static_cast<size_t>(std::find(members.begin(), members.end(), member) - members.begin());
}

const char* SliceSum::summand(const Target& target, int member) const {
  if (member == wire_.me) return in_ + cut_.begin(target.member, k_);
  const size_t index = place_of(member);
  const char* const lies_at = target.from[index] ? target.from[index]->at() : nullptr;
  return lies_at != nullptr ? lies_at : target.rooms[index];
}

// Of a node with one member that is what it has; of others a sum, and nothing of theirs is needed any more.
const char* SliceSum::node_sum(Target& target, size_t index) const {
  const int first = nodes_here_[index] << level_, end = std::min(wire_.size, first + (1 << level_));
  if (end - first == 1) return summand(target, first);
  std::vector<const void*> sources;
  for (int member = first; member < end; ++member) sources.push_back(summand(target, member));
  add_sources(call_, target.sums[index], sources, cut_.length(target.member, k_));
  for (int member = first; member < end; ++member)
    if (member != wire_.me) target.from[place_of(member)] = nullptr;
  return target.sums[index];
}

void SliceSum::send_parts() {
  near_.clear();
  for (Target& target : targets_)
    for (size_t i = 0; i < nodes_here_.size() && target.member != wire_.me; ++i)
      if (const int64_t length = cut_.length(target.member, k_); length > 0)
        wire_.send(sent_parts_, node_sum(target, i), length, target.member, kParts);
}

void SliceSum::add(char* out) {
  Target& own = *target_of(wire_.me);
  const int64_t length = cut_.length(wire_.me, k_);
  if (length == 0) return;
  std::vector<const void*> sources(from_hosts_.begin(), from_hosts_.end());
  for (size_t i = 0; i < nodes_here_.size(); ++i) sources[static_cast<size_t>(nodes_here_[i])] = node_sum(own, i);
  add_sources(call_, out, sources, length);
  std::fill(own.from.begin(), own.from.end(), nullptr);
}

void SliceSum::let_go() {
  for (Target& target : targets_) std::fill(target.from.begin(), target.from.end(), nullptr);
}

// ---- Spread ----

Spread::Spread(const Wire& wire, const Cut& cut, char* data)
    : wire_(wire), cut_(cut), data_(data), pieces_(std::make_unique<Piece[]>(static_cast<size_t>(cut.pieces()))) {}

void Spread::post(int64_t k) {
  Piece& piece = at(k);
  const Hosts& hosts = wire_.hosts;
  const int here = hosts.of(wire_.me);
  for (int step = 1; step < wire_.size; ++step) {
    const int from = (wire_.me + wire_.size - step) % wire_.size, relay = hosts.relay(here, from);
    char* const to = data_ + cut_.begin(from, k);
    const int64_t length = cut_.length(from, k);
    if (relay == wire_.me) wire_.recv(piece.from_hosts, to, length, from, kResults);
    if (relay == from) wire_.recv(piece.rest, to, length, from, kResults);
  }
  // In the order in which `relay` sends them.
  for (int from = 0; from < wire_.size; ++from)
    if (const int relay = hosts.relay(here, from); relay != wire_.me && relay != from)
      wire_.recv(piece.rest, data_ + cut_.begin(from, k), cut_.length(from, k), relay, kRelayed);
  for (int step = 1; step < wire_.size; ++step) {
    const int to = (wire_.me + step) % wire_.size;
    if (hosts.relay(hosts.of(to), wire_.me) == to || hosts.near(to, wire_.me))
      wire_.send(piece.rest, data_ + cut_.begin(wire_.me, k), cut_.length(wire_.me, k), to, kResults);
  }
}

void Spread::relay(int64_t k) {
  const int here = wire_.hosts.of(wire_.me);
  for (int from = 0; from < wire_.size; ++from) {
    if (wire_.hosts.near(from, wire_.me) || wire_.hosts.relay(here, from) != wire_.me) continue;
    for (const int to : wire_.hosts.on(here))
      if (to != wire_.me) wire_.send(at(k).rest, data_ + cut_.begin(from, k), cut_.length(from, k), to, kRelayed);
  }
}

}  // namespace drivetrain::toolkit::messages
