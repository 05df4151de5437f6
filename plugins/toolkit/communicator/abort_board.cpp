#include <drivetrain/toolkit/communicator/abort_board.h>

#include <unistd.h>

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/communicator/rank_list.h>

namespace drivetrain::toolkit {

AbortBoard::AbortBoard(std::string plugin, Store& store, int64_t rank, double timeout_s, double period_s)
    : plugin_(std::move(plugin)), store_(store), rank_(rank), timeout_s_(timeout_s), period_s_(period_s) {
  // Communicators made one after the other on the same store must not find each other's keys.
  prefix_ = concat(plugin_, "/", store_.add(concat(plugin_, "/made/", rank_), 1), "/");
}

AbortBoard::~AbortBoard() = default;

std::string AbortBoard::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void AbortBoard::throw_if_aborted(const std::string& where) const {
  if (aborted_) throw fail(ErrorCode::communication, plugin_, ", ", where, ": ", cause());
}

void AbortBoard::adopt(const std::string& cause) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (cause_.empty()) cause_ = cause;
  } catch (...) {
    // No memory for the text.
  }
  aborted_ = true;
  on_abort(false);
}

std::string AbortBoard::raise(const std::string& cause) noexcept {
  try {
    if (aborted_) return this->cause();
    try {
      if (store_.add(key("causes"), 1) == 1) {
        store_.set(key("cause"), cause);
        on_abort(true);
      } else {
        adopt(store_.get(key("cause"), kValueS));
      }
    } catch (const std::exception&) {
      // The store is gone with rank 0: this rank still has to stop.
    }
    adopt(cause);
    return this->cause();
  } catch (...) {
    adopt({});
    return {};
  }
}

bool AbortBoard::take_over() {
  if (!aborted_ && store_.has(key("cause"))) adopt(store_.get(key("cause"), kValueS));
  return aborted_;
}

std::string AbortBoard::closed(int64_t rank) {
  const std::string name = key(concat("closed/", rank));
  if (rank == rank_ || !store_.has(name)) return "";
  return concat("rank ", rank, " (pid ", store_.get(name, kValueS), ") closed its communicator");
}

void AbortBoard::close() noexcept {
  try {
    store_.set(key(concat("closed/", rank_)), std::to_string(getpid()));
    store_.set(key("closed"), "");
  } catch (...) {
    // Nobody is there to read it.
  }
}

std::string AbortBoard::here(const std::string& label, int64_t rank) const {
  return key(concat("here/", label, "/", rank));
}

void AbortBoard::arrive(const std::string& label) { store_.set(here(label, rank_), ""); }

std::vector<int64_t> AbortBoard::absent(const std::vector<int64_t>& ranks, const std::string& label) {
  std::vector<int64_t> list;
  for (const int64_t rank : ranks)
    if (!store_.has(here(label, rank))) list.push_back(rank);
  return list;
}

std::string AbortBoard::late(const std::vector<int64_t>& absent, const std::vector<int64_t>& ranks,
                             const std::string& where) const {
  std::vector<int64_t> there;
  for (const int64_t rank : ranks)
    if (std::find(absent.begin(), absent.end(), rank) == absent.end()) there.push_back(rank);
  return concat(rank_list(absent), " did not reach ", where, " within ", timeout_s_, " s (", rank_list(there), " did)");
}

}  // namespace drivetrain::toolkit
