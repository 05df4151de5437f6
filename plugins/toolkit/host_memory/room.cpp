#include <drivetrain/toolkit/host_memory/room.h>

#include <unistd.h>

#include <sstream>

#include <drivetrain/error.h>

namespace drivetrain::toolkit::host_memory {
namespace {

// Behind the token, in the head of the first segment.
constexpr int64_t kListAt = 64;
static_assert(kListAt + sizeof(SegmentList) <= SharedMemory::kHeadBytes);

SegmentList& list_in(char* head) { return *reinterpret_cast<SegmentList*>(head + kListAt); }

}  // namespace

Room::Room(int64_t rank, int64_t world_size) : rank_(rank), memory_(book_, rank, most_shared_bytes(world_size)) {
  memory_.list_in(host_memory::list_in(memory_.head()));
}

std::string Room::announcement() const {
  return concat(getpid(), ":", memory_.first().fd(), ":", memory_.first().mapping()->bytes(), ":",
                memory_.token().text());
}

void Room::meet(int64_t rank, const std::string& announcement) {
  const std::lock_guard lock(mutex_);
  if (peers_.contains(rank)) return;
  PeerSegment first;
  std::istringstream words(announcement);
  char colon = 0;
  words >> first.pid >> colon >> first.fd >> colon >> first.bytes >> colon >> first.token.high >> colon >>
      first.token.low;
  if (words.fail() || first.bytes < SharedMemory::kHeadBytes)
    throw fail(ErrorCode::communication, "rank ", rank, " announced its memory by \"", announcement, "\"");
  try {
    Peer& peer = peers_[rank] = {first, map_peer_segment(first)};
    book_.add(rank, 0, peer.mapping);
  } catch (const Error& e) {
    peers_.erase(rank);
    throw fail(e.code(), "rank ", rank, " (pid ", first.pid, "): ", e.what());
  }
}

int64_t Room::offset_of(const void* data, int64_t bytes) const {
  const Place place = book_.place_of(data);
  return place.rank == rank_ && book_.find(place, bytes) == data ? place.offset : -1;
}

const char* Room::find(int64_t rank, int64_t offset, int64_t bytes) {
  if (const char* const known = book_.find({rank, offset}, bytes)) return known;
  const std::lock_guard lock(mutex_);
  const auto peer = peers_.find(rank);
  if (peer == peers_.end()) return nullptr;
  const auto entry = list_in(peer->second.mapping->base()).find(offset);
  if (!entry || book_.find({rank, offset}, 1) != nullptr) return nullptr;
  const PeerSegment& first = peer->second.first;
  book_.add(rank, entry->offset, map_peer_segment({first.pid, entry->fd, entry->bytes, first.token}));
  return book_.find({rank, offset}, bytes);
}

}  // namespace drivetrain::toolkit::host_memory
