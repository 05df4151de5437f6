#include <drivetrain/toolkit/communicator/call.h>

#include <iterator>

#include <drivetrain/error.h>

namespace drivetrain::toolkit {

const char* name_of(CallKind kind) {
  static const char* const names[] = {"nothing",    "make_group", "all_reduce",  "all_gather", "reduce_scatter",
                                      "all_to_all", "all_to_all", "broadcast",   "barrier",    "allocate_once",
                                      "send",       "recv",       "send or recv"};
  const auto index = static_cast<uint32_t>(kind);
  return index < std::size(names) ? names[index] : "an unknown call";
}

bool Call::fits(const Call& other) const {
  const bool counted = kind != CallKind::all_to_all_counts;
  return kind == other.kind && dtype == other.dtype && (!counted || count == other.count) && peer == other.peer &&
         number == other.number;
}

std::string Call::amount() const { return concat(count, " ", c10::toString(dtype)); }

std::string Call::text() const {
  switch (kind) {
    case CallKind::none:
    case CallKind::make_group:
    case CallKind::barrier:
      return name_of(kind);
    case CallKind::all_to_all_counts:
      return concat(name_of(kind), " of ", c10::toString(dtype), " with counts");
    case CallKind::batch:
      return concat("batch of ", count, " sends and recvs");
    case CallKind::send:
      return concat(name_of(kind), " of ", amount(), " to index ", peer);
    case CallKind::recv:
    case CallKind::broadcast:
      return concat(name_of(kind), " of ", amount(), " from index ", peer);
    case CallKind::all_gather:
    case CallKind::reduce_scatter:
    case CallKind::all_to_all:
      return concat(name_of(kind), " of ", amount(), " per rank");
    default:
      return concat(name_of(kind), " of ", amount());
  }
}

std::string Call::where(const std::string& group) const {
  if (kind == CallKind::send || kind == CallKind::recv || kind == CallKind::batch)
    return concat(text(), " in group \"", group, "\"");
  if (kind == CallKind::make_group) return concat(name_of(kind), " of group \"", group, "\"");
  return concat(name_of(kind), " #", number, " of group \"", group, "\"");
}

std::string Call::disagreement(const std::string& group) const {
  return concat("ranks disagree about call #", number, " of group \"", group, "\": ");
}

std::string counts_differ(at::ScalarType dtype, int64_t from, int64_t sent, int64_t to, int64_t expected) {
  return concat("rank ", from, " sends ", sent, " ", c10::toString(dtype), " to rank ", to, ", which expects ",
                expected);
}

}  // namespace drivetrain::toolkit
