#include "study/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"

namespace drivetrain::study {
namespace {

constexpr size_t kBar = 30, kMostCellLines = 4;
constexpr auto kDrawEvery = std::chrono::milliseconds(200);

// TERM=dumb, as editors have it, cannot go back.
bool can_draw(int terminal) {
  const char* const kind = std::getenv("TERM");
  return terminal >= 0 && isatty(terminal) && kind && *kind && std::strcmp(kind, "dumb") != 0;
}

size_t width_of(int terminal) {
  winsize size = {};
  return ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

char mark_of(State state) {
  switch (state) {
    case State::oom:
      return 'M';
    case State::refused:
      return 'R';
    case State::timeout:
      return 'T';
    case State::crashed:
      return 'C';
    case State::nan:
      return 'N';
    default:
      return '.';
  }
}

}  // namespace

std::string duration_text(double seconds) {
  const auto s = static_cast<long long>(std::max(0.0, seconds) + 0.5);
  if (s < 60) return formatted("%lld s", s);
  if (s < 3600) return formatted("%lld min %02lld s", s / 60, s % 60);
  return formatted("%lld h %02lld min", s / 3600, s / 60 % 60);
}

Progress::Progress(std::string name, int terminal)
    : name_(std::move(name)), terminal_(can_draw(terminal) ? terminal : -1) {}

Progress::~Progress() { erase(); }

void Progress::line(const std::string& text) {
  erase();
  std::cout << printable(text) << "\n" << std::flush;
  draw();
}

void Progress::begin_study(size_t cells, int64_t runs, bool at_most) {
  cells_.assign(cells, {}), runs_ = runs, at_most_ = at_most;
}

void Progress::ended(size_t cell, State state) {
  ++ended_, ++by_state_[static_cast<size_t>(state)];
  if (state == State::ok)
    ++cells_[cell].ok;
  else if (state != State::skipped)
    cells_[cell].worst = state;
}

void Progress::begin_run(const std::string& cell, int64_t block, size_t slot) {
  erase();
  now_[slot] = {cell, block};
  slots_ = std::max(slots_, now_.size());
  draw();
}

void Progress::end_run(double wall_s, size_t slot) { now_.erase(slot), timed_s_ += wall_s, ++timed_; }

void Progress::tick(double now_s, int64_t step, size_t slot) {
  now_[slot].seconds = now_s, now_[slot].step = step;
  if (terminal_ < 0 || std::chrono::steady_clock::now() - last_draw_ < kDrawEvery) return;
  erase();
  draw();
}

std::string Progress::time_left() const {
  if (timed_ == 0) return "";
  double left_s = static_cast<double>(left()) * timed_s_ / static_cast<double>(timed_);
  for (const auto& [slot, now] : now_) left_s -= now.seconds;
  return (at_most_ ? "at most about " : "about ") + duration_text(left_s / static_cast<double>(slots_));
}

std::string Progress::counts() const {
  std::string text;
  for (size_t i = 0; i < by_state_.size(); ++i)
    if (by_state_[i] > 0)
      text += concat(text.empty() ? "" : "  ", state_name(static_cast<State>(i)), " ", by_state_[i]);
  return text;
}

// One character each: the number of runs that were ok, or how the others ended.
std::string Progress::cells() const {
  std::string text;
  for (const CellState& cell : cells_)
    text += cell.worst != State::ok ? mark_of(cell.worst)
            : cell.ok == 0          ? '.'
                                    : static_cast<char>('0' + std::min<int64_t>(cell.ok, 9));
  return text;
}

std::vector<std::string> Progress::lines(size_t width) const {
  if (runs_ == 0) return {};
  const auto done = static_cast<size_t>(ended_ * static_cast<int64_t>(kBar) / runs_);
  std::string head =
      formatted("%s  [%s%s] %3lld %%  %lld of %s%lld runs", name_.c_str(), std::string(done, '#').c_str(),
                std::string(kBar - done, '-').c_str(), static_cast<long long>(100 * ended_ / runs_),
                static_cast<long long>(ended_), at_most_ ? "at most " : "", static_cast<long long>(runs_));
  if (!time_left().empty() && left() > 0) head += "  " + time_left() + " left";
  std::vector<std::string> lines = {head};
  if (!counts().empty()) lines.push_back(counts());
  const std::string begin = "cells  ", all = cells();
  const size_t room = width > begin.size() + 20 ? width - begin.size() - 1 : 20;
  for (size_t at = 0; at < all.size() && at < kMostCellLines * room; at += room)
    lines.push_back((at == 0 ? begin : std::string(begin.size(), ' ')) + all.substr(at, room));
  if (all.size() > kMostCellLines * room) lines.back().replace(lines.back().size() - 3, 3, "...");
  lines.push_back(". none yet  1-9 ok runs  M memory  R refused  T timeout  C crashed  N not finite");
  for (const auto& [slot, now] : now_)
    lines.push_back(concat("now    ", now.cell, "  repeat ", now.block + 1, "  step ", now.step,
                           formatted("  %.1f s", now.seconds)));
  for (std::string& one : lines)
    if (one = printable(one); one.size() >= width) one.resize(width - 1);  // a longer one would take two rows
  return lines;
}

void Progress::draw() {
  if (terminal_ < 0) return;
  const std::vector<std::string> now = lines(width_of(terminal_));
  for (const std::string& one : now) std::cout << one << "\n";
  std::cout << std::flush;
  drawn_ = now.size(), last_draw_ = std::chrono::steady_clock::now();
}

// Up to the first of them, and away with everything from there on.
void Progress::erase() {
  if (drawn_ > 0) std::cout << "\033[" << drawn_ << "A\033[J" << std::flush;
  drawn_ = 0;
}

}  // namespace drivetrain::study
