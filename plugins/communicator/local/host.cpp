#include "host.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>

#include <drivetrain/toolkit/files/proc_text.h>
#include <drivetrain/toolkit/host.h>
#include <drivetrain/toolkit/host/processors.h>
#include <drivetrain/toolkit/standstill.h>

namespace drivetrain::local {
namespace {

using Clock = std::chrono::steady_clock;

struct ProcessStat {
  char state = 'X';  // X also where there is no such process
  uint64_t start = 0;
};

// State and start time from /proc/<pid>/stat; the command name before them may hold spaces and parentheses.
ProcessStat process_stat(pid_t pid) {
  const std::string text = proc_text(concat("/proc/", pid, "/stat"));
  const size_t end = text.rfind(')');
  ProcessStat stat;
  if (end == std::string::npos) return stat;
  std::istringstream fields(text.substr(end + 1));
  std::string skipped;
  fields >> stat.state;
  for (int i = 4; i < 22; ++i) fields >> skipped;
  fields >> stat.start;
  return stat;
}

bool alive(pid_t pid, uint64_t start) {
  const ProcessStat stat = process_stat(pid);
  return stat.state != 'Z' && stat.state != 'X' && stat.start == start;
}

constexpr int64_t kSpin = 2000;

// Where this rank may run; all cores where the system does not say.
std::set<int> own_cores() {
  cpu_set_t set;
  const bool known = sched_getaffinity(0, sizeof set, &set) == 0;
  const int count = known ? CPU_SETSIZE : static_cast<int>(std::thread::hardware_concurrency());
  std::set<int> cores;
  for (int core = 0; core < count; ++core)
    if (!known || CPU_ISSET(core, &set)) cores.insert(core);
  return cores;
}

// Ranks that look for each other all the time take it from those that they wait for, where a control group counts it.
int64_t most_at_once() {
  return static_cast<int64_t>(std::min(processor_share().quota.value_or(CPU_SETSIZE), double{CPU_SETSIZE}));
}

// "0,1,5,"
std::string text_of(const std::set<int>& cores) {
  std::string text;
  for (const int core : cores) text += concat(core, ",");
  return text;
}
std::set<int> cores_of(const std::string& text) {
  std::set<int> cores;
  std::istringstream list(text);
  for (int core = 0; list >> core; list.ignore()) cores.insert(core);
  return cores;
}

// What a rank says of itself in the store.
struct Announcement {
  explicit Announcement(const std::string& value) : text(value) {
    std::istringstream words(value);
    char dash = 0;
    PeerSegment& s = segment;
    words >> s.pid >> start >> s.fd >> s.bytes >> s.token.high >> dash >> s.token.low >> cores >> mark >> name;
    complete = !words.fail() && dash == '-';
  }

  const std::string text;
  PeerSegment segment;  // its first one
  uint64_t start = 0;
  std::string cores, mark, name;
  bool complete = false;
};

}  // namespace

Host::Host(const Services& services, const LocalOptions& options)
    : rank_(services.rank),
      options_(options),
      world_size_(services.world_size),
      cores_(own_cores()),
      may_spin_(services.world_size <= most_at_once()),
      spin_(options.spin.value_or(may_spin_ && services.world_size <= static_cast<int64_t>(cores_.size()) ? kSpin : 0)),
      store_(services.store),
      memory_(book_, rank_, most_shared_bytes(services.world_size)),
      by_rank_(static_cast<size_t>(services.world_size)) {
  memory_.list_in(own_head().segments);
  board_ = &own_head();
  // Communicators made one after the other on the same store must not find each other's keys.
  prefix_ = concat("communicator/local/", store_.add(concat("communicator/local/made/", rank_), 1), "/");
  publish(concat("file/", rank_), concat(getpid(), " ", process_stat(getpid()).start, " ", memory_.first().fd(), " ",
                                         memory_.first().mapping()->bytes(), " ", memory_.token().text(), " ",
                                         text_of(cores_), " ", host_mark(), " ", host_name()));
}

void Host::publish(const std::string& key, const std::string& value) { store_.set(prefix_ + key, value); }

std::string Host::await(const std::string& key, const std::string& where, const std::string& from,
                        const std::vector<int64_t>& members) {
  auto deadline = Clock::now() + std::chrono::duration<double>(options_.timeout_s);
  for (auto pause = std::chrono::microseconds(200); !store_.has(prefix_ + key);
       pause = std::min(2 * pause, std::chrono::microseconds(20000))) {
    throw_if_aborted(where);
    note_lost(where, members);
    // Who should set the key may still need our part of an earlier call.
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) advance();
    if (Clock::now() > deadline) give_up(where, concat(from, " did not arrive within ", options_.timeout_s, " s"));
    deadline += standstill_in([&] { std::this_thread::sleep_for(pause); });
  }
  return store_.get(prefix_ + key, options_.timeout_s);
}

// Any rank's death ends the run, but others than `members` may leave in order.
void Host::note_lost(const std::string& where, const std::vector<int64_t>& members) {
  const std::lock_guard lock(peers_mutex_);
  for (const auto& [rank, peer] : peers_) {
    const std::string cause = lost(peer);
    const bool member = std::find(members.begin(), members.end(), rank) != members.end();
    if (!cause.empty() && (member || peer.head().closed.load() == 0)) give_up(where, cause);
  }
}

// Ranks that are bound to cores of their own each see one core: only all of them together say whether each has one.
void Host::count_cores(const std::set<int>& cores) {
  cores_.insert(cores.begin(), cores.end());
  const bool all = static_cast<int64_t>(peers_.size()) + 1 == world_size_;
  if (!options_.spin && may_spin_ && all && static_cast<int64_t>(cores_.size()) >= world_size_) spin_ = kSpin;
}

// Waits without a lock: who moves this rank's calls meanwhile may have to meet a rank, too.
const Peer& Host::connect(int64_t rank, const std::string& where, const std::vector<int64_t>& members) {
  if (rank != 0 && rank_ != 0) connect(0, where, members);  // a later abort must reach us
  if (const Peer* const known = by_rank_[static_cast<size_t>(rank)].load()) return *known;
  return meet(rank, await(concat("file/", rank), where, concat("rank ", rank), members), where);
}

const Peer& Host::meet(int64_t rank, const std::string& announced, const std::string& where) {
  const std::lock_guard lock(peers_mutex_);
  if (const Peer* const known = by_rank_[static_cast<size_t>(rank)].load()) return *known;
  const Announcement said(announced);
  if (!said.complete) give_up(where, concat("rank ", rank, " announced itself by \"", said.text, "\""));
  if (said.mark != host_mark())
    throw fail(ErrorCode::config, where, ": communicator/local joins ranks of one host; rank ", rank, " runs on ",
               said.name, ", rank ", rank_, " on ", host_name(),
               ". Start all ranks on one host and in one container, or take a communicator that crosses "
               "hosts; `drivetrain inspect` lists them.");
  Peer peer{rank, said.segment.pid, said.start, said.segment.token, nullptr};
  peer.file = mapped(peer, said.segment, where);
  if (rank == 0) {
    const std::string earlier = cause();
    board_file_ = peer.file;
    board_ = &peer.head();
    if (!earlier.empty()) abort(earlier);
  }
  book_.add(rank, 0, peer.file);
  const Peer& added = peers_[rank] = peer;
  by_rank_[static_cast<size_t>(rank)] = &added;
  count_cores(cores_of(said.cores));
  return added;
}

std::shared_ptr<Mapping> Host::mapped(const Peer& peer, const PeerSegment& segment, const std::string& where) {
  try {
    return map_peer_segment(segment);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::communication) throw;
    // A process that ends has closed its files a moment before it is seen to be gone.
    for (int i = 0; i < 50 && alive(peer.pid, peer.start); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (!alive(peer.pid, peer.start)) give_up(where, peer.text() + " died");
    give_up(where, concat(peer.text(), ": ", e.what()));
  }
}

// A rank of another group, which this one may not have met: whoever names its memory has, so that nothing is left to
// wait for. The host's mutex is held.
const Peer& Host::owner_of(const Place& place, int64_t said_by, const std::string& where) {
  if (const Peer* const known = by_rank_[static_cast<size_t>(place.rank)].load()) return *known;
  const std::string key = prefix_ + concat("file/", place.rank);
  if (!store_.has(key))
    give_up(where, concat("rank ", said_by, " named memory of rank ", place.rank, ", which has announced none"));
  return meet(place.rank, store_.get(key, options_.timeout_s), where);
}

char* Host::map_place(const Place& place, int64_t bytes, int64_t said_by) {
  const std::string where = "a buffer of a peer";
  if (place.rank >= 0 && place.rank < world_size_ && place.rank != rank_) {
    const Peer& peer = owner_of(place, said_by, where);
    const std::lock_guard lock(segments_mutex_);
    if (book_.find(place, bytes) == nullptr) map_segment(peer, place);
  }
  if (char* const found = book_.find(place, bytes)) return found;
  give_up(where, concat("rank ", said_by, " named ", bytes, " bytes at offset ", place.offset, " of rank ", place.rank,
                        "'s shared memory, where there are no such bytes"));
}

void Host::map_segment(const Peer& peer, const Place& place) {
  const std::optional<SegmentList::Entry> entry = peer.head().segments.find(place.offset);
  if (!entry) return;
  book_.add(peer.rank, entry->offset,
            mapped(peer, {peer.pid, entry->fd, entry->bytes, peer.token}, "a buffer of a peer"));
}

void Host::close() noexcept { own_head().closed.store(1); }

void Host::abort(const std::string& cause) noexcept {
  FileHead& board = *board_.load();
  uint32_t none = 0;
  if (!board.abort_state.compare_exchange_strong(none, 1)) return;
  const size_t length = std::min(cause.size(), sizeof board.cause - 1);
  memcpy(board.cause, cause.data(), length);
  board.cause[length] = 0;
  board.abort_state.store(2);
}

std::string Host::cause() const {
  const FileHead& board = *board_.load();
  const uint32_t state = board.abort_state.load();
  if (state == 0) return "";
  for (int i = 0; i < 100 && board.abort_state.load() == 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return board.abort_state.load() == 2 ? std::string(board.cause, strnlen(board.cause, sizeof board.cause))
                                       : "a rank aborted and died before it could say why";
}

std::string Host::lost(const Peer& peer) const {
  if (peer.rank == rank_) return "";
  const bool gone = !alive(peer.pid, peer.start);  // first: who closes may be gone right afterwards
  if (peer.head().closed.load() != 0) return peer.text() + " closed its communicator";
  return gone ? peer.text() + " died" : "";
}

bool Host::is_stopped(const Peer& peer) const { return peer.rank != rank_ && process_stat(peer.pid).state == 'T'; }

std::string Host::stopped(const std::vector<Peer>& peers) const {
  std::string text;
  for (const Peer& peer : peers)
    if (is_stopped(peer)) text += concat("; ", peer.text(), " is stopped by a signal");
  return text;
}

void Host::give_up(const std::string& where, const std::string& cause) {
  abort(cause);
  throw_if_aborted(where);
  throw fail(ErrorCode::communication, "communicator/local, ", where, ": ", cause);
}

void Host::throw_if_aborted(const std::string& where) const {
  if (const std::string text = cause(); !text.empty())
    throw fail(ErrorCode::communication, "communicator/local, ", where, ": ", text);
}

}  // namespace drivetrain::local
