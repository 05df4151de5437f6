// NCCL's calls between threads of one process, over fake_cuda. Sums are added in rank order, which is not the fixed
// tree: a test can tell the two apart. Calls that do not fit each other wait for ever, as the real ones may; aborting
// the communicator ends them.
#include "fake_cuda.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <nccl.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace {

enum class Kind { reduce, reduce_scatter, gather, broadcast };

struct Posted {
  Kind kind;
  const char* in;
  size_t count;  // elements of `in`
  ncclDataType_t type;
  int root;
  bool fits(const Posted& o) const { return kind == o.kind && count == o.count && type == o.type && root == o.root; }
};

using Bytes = std::vector<char>;

struct Shared {
  explicit Shared(int ranks) : size(ranks) {}
  const int size;
  std::mutex mutex;
  std::condition_variable bell;
  int arrived = 0, gone = 0;
  bool recorded = false;  // a call of it: then ranks are connected to each other's proxy
  std::set<int> aborted;  // ranks: an abort ends the waiting of its own rank only
  struct Round {
    std::map<int, Posted> posted;
    int read = 0;
  };
  std::map<int64_t, Round> rounds;
  std::map<std::pair<int, int>, std::vector<Bytes>> messages;

  template <class Condition>
  bool wait(std::unique_lock<std::mutex>& lock, int rank, const Condition& condition) {
    bell.wait(lock, [&] { return aborted.count(rank) > 0 || condition(); });
    return aborted.count(rank) == 0;
  }
  void stop(int rank) {
    const std::lock_guard lock(mutex);
    aborted.insert(rank);
    bell.notify_all();
  }
  // Whether a call is recorded: where it is enqueued, as NCCL sees it.
  void note_recording() {
    const std::lock_guard lock(mutex);
    recorded = recorded || drivetrain::nccl::host_records();
  }
};

std::mutex registry_mutex;
std::map<std::string, std::shared_ptr<Shared>> registry;

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

template <class T>
void add(char* out, const char* in, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    T& sum = reinterpret_cast<T*>(out)[i];
    sum = static_cast<T>(sum + reinterpret_cast<const T*>(in)[i]);
  }
}

void add(ncclDataType_t type, char* out, const char* in, size_t count) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return add<uint8_t>(out, in, count);
    case ncclInt32:
    case ncclUint32:
      return add<uint32_t>(out, in, count);
    case ncclInt64:
    case ncclUint64:
      return add<uint64_t>(out, in, count);
    case ncclFloat16:
      return add<c10::Half>(out, in, count);
    case ncclBfloat16:
      return add<c10::BFloat16>(out, in, count);
    case ncclFloat32:
      return add<float>(out, in, count);
    default:
      return add<double>(out, in, count);
  }
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Shared> shared;
  int rank;
  // Counted where a call runs, which a replay does again.
  std::shared_ptr<int64_t> rounds = std::make_shared<int64_t>(0);
};

namespace {

// One collective of one rank, on its stream.
void collective(const std::shared_ptr<Shared>& shared, int rank, int64_t number, const Posted& mine, char* out) {
  std::unique_lock lock(shared->mutex);
  auto& round = shared->rounds[number];
  round.posted[rank] = mine;
  shared->bell.notify_all();
  const auto all_fit = [&] {
    if (round.posted.size() != static_cast<size_t>(shared->size)) return false;
    for (const auto& [r, posted] : round.posted)
      if (!posted.fits(mine)) return false;
    return true;
  };
  if (!shared->wait(lock, rank, all_fit)) return;
  const size_t bytes = mine.count * size_of(mine.type), part = bytes / static_cast<size_t>(shared->size);
  Bytes result;
  for (const auto& [r, posted] : round.posted) {
    if (mine.kind == Kind::gather)
      result.insert(result.end(), posted.in, posted.in + bytes);
    else if (mine.kind == Kind::broadcast ? r == mine.root : result.empty())
      result.assign(posted.in, posted.in + bytes);
    else if (mine.kind != Kind::broadcast)
      add(mine.type, result.data(), posted.in, mine.count);
  }
  ++round.read;
  shared->bell.notify_all();
  if (!shared->wait(lock, rank, [&] { return round.read == shared->size; })) return;  // now inputs may be overwritten
  if (mine.kind == Kind::reduce_scatter)
    std::memcpy(out, result.data() + static_cast<size_t>(rank) * part, part);
  else
    std::memcpy(out, result.data(), result.size());
}

struct Message {
  bool sending;
  char* data;
  size_t bytes;
  int peer;
};

// Sends are taken at once, so the order within a group does not matter.
void transfer(const std::shared_ptr<Shared>& shared, int rank, const std::vector<Message>& messages) {
  std::unique_lock lock(shared->mutex);
  for (const Message& m : messages)
    if (m.sending) shared->messages[{rank, m.peer}].emplace_back(m.data, m.data + m.bytes);
  shared->bell.notify_all();
  for (const Message& m : messages) {
    if (m.sending) continue;
    auto& queue = shared->messages[{m.peer, rank}];
    if (!shared->wait(lock, rank, [&] { return !queue.empty() && queue.front().size() == m.bytes; })) return;
    std::memcpy(m.data, queue.front().data(), m.bytes);
    queue.erase(queue.begin());
  }
}

struct Pending {
  ncclComm_t comm;
  cudaStream_t stream;
  std::vector<Message> messages;
};
thread_local int depth = 0;
thread_local std::vector<Pending> pending;

ncclResult_t message(ncclComm_t comm, cudaStream_t stream, const Message& m) {
  ncclGroupStart();
  if (pending.empty() || pending.back().comm != comm) pending.push_back({comm, stream, {}});
  pending.back().messages.push_back(m);
  return ncclGroupEnd();
}

ncclResult_t post(ncclComm_t comm, cudaStream_t stream, const Posted& posted, void* out) {
  comm->shared->note_recording();
  drivetrain::nccl::enqueue_on_host(stream, [=, shared = comm->shared, rank = comm->rank, rounds = comm->rounds] {
    collective(shared, rank, (*rounds)++, posted, static_cast<char*>(out));
  });
  return ncclSuccess;
}

const char* chars(const void* p) { return static_cast<const char*>(p); }

}  // namespace

namespace drivetrain::nccl {
std::atomic<int> host_nccl_version = 23007, host_closing_ms = 0, host_closings_begun = 0;
std::atomic<int> host_joining_answer = ncclSuccess, host_background_answer = ncclSuccess;
std::atomic<const char*> host_nccl_last_words = "";
}  // namespace drivetrain::nccl

extern "C" {
ncclResult_t ncclGetVersion(int* version) { return *version = drivetrain::nccl::host_nccl_version, ncclSuccess; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made{0};
  std::memset(id->internal, 0, sizeof id->internal);
  const std::string text = std::to_string(++made);
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t*) {
  std::shared_ptr<Shared> shared;
  {
    const std::lock_guard lock(registry_mutex);
    auto& known = registry[id.internal];
    if (!known) known = std::make_shared<Shared>(ranks);
    shared = known;
  }
  std::unique_lock lock(shared->mutex);
  ++shared->arrived;
  shared->bell.notify_all();
  if (rank == 1 && drivetrain::nccl::host_joining_answer != ncclSuccess)
    return static_cast<ncclResult_t>(drivetrain::nccl::host_joining_answer.load());
  shared->wait(lock, rank, [&] { return shared->arrived == ranks; });
  *comm = new ncclComm{shared, rank};
  return ncclSuccess;
}
// Where a call was recorded it waits for the peers to close theirs, too.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  ++drivetrain::nccl::host_closings_begun;
  // Waits: a GPU that ranks share is slow to let go of a communicator, and one whose peer is lost does not
  std::this_thread::sleep_for(std::chrono::milliseconds(drivetrain::nccl::host_closing_ms));
  Shared& shared = *comm->shared;
  std::unique_lock lock(shared.mutex);
  ++shared.gone;
  shared.bell.notify_all();
  if (shared.recorded) shared.wait(lock, comm->rank, [&] { return shared.gone >= shared.size; });
  lock.unlock();
  return delete comm, ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->shared->stop(comm->rank);
  {
    const std::lock_guard lock(comm->shared->mutex);
    ++comm->shared->gone;
  }
  comm->shared->bell.notify_all();
  return delete comm, ncclSuccess;
}
ncclResult_t ncclCommRevoke(ncclComm_t comm, int) { return comm->shared->stop(comm->rank), ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  *result = comm->rank == 1 ? static_cast<ncclResult_t>(drivetrain::nccl::host_background_answer.load()) : ncclSuccess;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "an error of the stand-in"; }
const char* ncclGetLastError(ncclComm_t) { return drivetrain::nccl::host_nccl_last_words; }
ncclResult_t ncclGroupStart() { return ++depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  for (const Pending& p : std::exchange(pending, {})) {
    p.comm->shared->note_recording();
    drivetrain::nccl::enqueue_on_host(p.stream, [shared = p.comm->shared, rank = p.comm->rank, messages = p.messages] {
      transfer(shared, rank, messages);
    });
  }
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t stream) {
  return post(comm, stream, {Kind::reduce, chars(in), count, type, 0}, out);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  return post(comm, stream, {Kind::reduce_scatter, chars(in), count * static_cast<size_t>(comm->shared->size), type, 0},
              out);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return post(comm, stream, {Kind::gather, chars(in), count, type, 0}, out);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return post(comm, stream, {Kind::broadcast, chars(in), count, type, root}, out);
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return message(comm, stream, {true, const_cast<char*>(chars(data)), count * size_of(type), peer});
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return message(comm, stream, {false, static_cast<char*>(data), count * size_of(type), peer});
}
}
