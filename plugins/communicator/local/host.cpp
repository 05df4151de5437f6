#include "host.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

namespace drivetrain::local {
namespace {

using Clock = std::chrono::steady_clock;

std::string file_line(const char* path) {
  std::string line;
  std::getline(std::ifstream(path) >> std::ws, line);
  return line.empty() ? "?" : line;
}

// Equal for processes that can reach each other through /proc: same boot of the same kernel, same pid namespace.
std::string host_mark() {
  char space[64] = "?";
  if (readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) strcpy(space, "?");
  return file_line("/proc/sys/kernel/random/boot_id") + "/" + space;
}

std::string host_name() {
  char name[256] = "?";
  gethostname(name, sizeof name - 1);
  return name;
}

struct ProcessStat {
  char state = 'X';  // X also where there is no such process
  uint64_t start = 0;
};

// State and start time from /proc/<pid>/stat; the command name before them may hold spaces and parentheses.
ProcessStat process_stat(pid_t pid) {
  std::ifstream file(concat("/proc/", pid, "/stat"));
  std::string text((std::istreambuf_iterator<char>(file)), {});
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

// "0,1,5,"
std::string text_of(const std::set<int>& cores) {
  std::string text;
  for (const int core : cores) text += concat(core, ",");
  return text;
}
std::set<int> cores_of(const std::string& text) {
  std::set<int> cores;
  std::istringstream list(text);
  for (std::string core; std::getline(list, core, ',');) cores.insert(std::stoi(core));
  return cores;
}

// Twice the memory of the host, as long as the files of all ranks fit the address space of each: sparse, so the figure
// only has to be large enough for what one rank may hold for all.
size_t file_bytes(int64_t world_size) {
  const size_t memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  const size_t most = (size_t{1} << 45) / static_cast<size_t>(world_size);
  return std::min(most, std::max<size_t>(size_t{1} << 30, 2 * memory)) & ~size_t{4095};
}

}  // namespace

Host::Host(const Services& services, const LocalOptions& options)
    : rank_(services.rank),
      options_(options),
      world_size_(services.world_size),
      cores_(own_cores()),
      spin_(options.spin.value_or(services.world_size <= static_cast<int64_t>(cores_.size()) ? kSpin : 0)),
      store_(services.store),
      memory_(file_bytes(services.world_size)),
      files_(static_cast<size_t>(services.world_size)),
      file_bytes_(static_cast<size_t>(services.world_size)) {
  file_bytes_[static_cast<size_t>(rank_)] = memory_.bytes();
  files_[static_cast<size_t>(rank_)] = memory_.base();
  board_ = &own_head();
  // Communicators made one after the other on the same store must not find each other's keys.
  prefix_ = concat("communicator/local/", store_.add(concat("communicator/local/made/", rank_), 1), "/");
  publish(concat("file/", rank_), concat(getpid(), " ", process_stat(getpid()).start, " ", memory_.fd(), " ",
                                         memory_.bytes(), " ", text_of(cores_), " ", host_mark(), " ", host_name()));
}

void Host::publish(const std::string& key, const std::string& value) { store_.set(prefix_ + key, value); }

std::string Host::await(const std::string& key, const std::string& where, const std::string& from,
                        const std::vector<int64_t>& members) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(options_.timeout_s);
  for (auto pause = std::chrono::microseconds(200); !store_.has(prefix_ + key);
       pause = std::min(2 * pause, std::chrono::microseconds(20000))) {
    throw_if_aborted(where);
    note_lost(where, members);
    // Who should set the key may still need our part of an earlier call.
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) advance();
    if (Clock::now() > deadline) give_up(where, concat(from, " did not arrive within ", options_.timeout_s, " s"));
    std::this_thread::sleep_for(pause);
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
  if (!options_.spin && all && static_cast<int64_t>(cores_.size()) >= world_size_) spin_ = kSpin;
}

const Peer& Host::connect(int64_t rank, const std::string& where, const std::vector<int64_t>& members) {
  const std::lock_guard lock(peers_mutex_);
  if (rank != 0 && rank_ != 0 && !board_file_) connect(0, where, members);  // a later abort must reach us
  const auto known = peers_.find(rank);
  if (known != peers_.end()) return known->second;

  std::istringstream text(await(concat("file/", rank), where, concat("rank ", rank), members));
  Peer peer;
  int fd = -1;
  size_t bytes = 0;
  std::string cores, mark, name;
  text >> peer.pid >> peer.start >> fd >> bytes >> cores >> mark >> name;
  peer.rank = rank;
  if (mark != host_mark())
    throw fail(ErrorCode::config, where, ": communicator/local joins ranks of one host; rank ", rank, " runs on ", name,
               ", rank ", rank_, " on ", host_name(), ". Start all ranks on one host and in one container.");
  try {
    peer.file = map_peer_file(peer.pid, fd, bytes);
  } catch (const Error&) {
    if (!alive(peer.pid, peer.start)) give_up(where, peer.text() + " died");
    throw;
  }
  if (rank == 0) {
    const std::string earlier = cause();
    board_file_ = peer.file;
    board_ = &peer.head();
    if (!earlier.empty()) abort(earlier);
  }
  file_bytes_[static_cast<size_t>(rank)] = bytes;
  files_[static_cast<size_t>(rank)] = peer.file->base();
  const Peer& added = peers_[rank] = peer;
  count_cores(cores_of(cores));
  return added;
}

Place Host::place_of(const void* address) const {
  const char* at = static_cast<const char*>(address);
  for (size_t rank = 0; rank < files_.size(); ++rank) {
    const char* base = files_[rank].load();
    if (base != nullptr && at >= base && at < base + file_bytes_[rank].load())
      return {static_cast<int64_t>(rank), at - base};
  }
  return {};
}

char* Host::address_of(const Place& place) {
  char* base = files_[static_cast<size_t>(place.rank)].load();
  if (base == nullptr) base = connect(place.rank, "a buffer of a peer", {place.rank}).file->base();
  return base + place.offset;
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
  return board.abort_state.load() == 2 ? board.cause : "a rank aborted and died before it could say why";
}

std::string Host::lost(const Peer& peer) const {
  if (peer.rank == rank_) return "";
  const bool gone = !alive(peer.pid, peer.start);  // first: who closes may be gone right afterwards
  if (peer.head().closed.load() != 0) return peer.text() + " closed its communicator";
  return gone ? peer.text() + " died" : "";
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
