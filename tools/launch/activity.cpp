#include "launch/activity.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <drivetrain/toolkit/files/proc_text.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain::program {
namespace {

constexpr int64_t kLeastIo = 64 << 10;   // a log line is no progress
constexpr int64_t kFileWork = 16 << 20;  // what looks at /proc is no writing of files
constexpr double kDiskFactor = 10;       // a disk may take so much longer

// Fields of a stat file from the third on; the name before them may hold anything.
std::istringstream stat_fields(const std::string& path) {
  const std::string text = proc_text(path);
  const size_t end = text.rfind(')');
  return std::istringstream(end == std::string::npos ? "" : text.substr(end + 1));
}

bool any_thread_waits_for_disk(const std::string& folder) {
  std::error_code gone;
  for (std::filesystem::directory_iterator task(folder + "/task", gone), end; !gone && task != end;
       task.increment(gone)) {
    char state = '?';
    stat_fields(task->path().string() + "/stat") >> state;
    if (state == 'D') return true;
  }
  return false;
}

int64_t io_bytes(const std::string& folder) {
  std::ifstream file(folder + "/io");
  int64_t sum = 0, value = 0;
  for (std::string name; file >> name >> value;)
    if (name == "rchar:" || name == "wchar:") sum += value;
  return sum;
}

}  // namespace

std::string Activity::text() const {
  if (waits_for_disk) return "waiting for a disk";
  switch (state) {
    case 'S':
    case 'I':
      return "asleep";
    case 'R':
      return "running";
    case 'T':
      return "stopped";
    case 't':
      return "held by a debugger";
    default:
      return std::string("in state ") + state;
  }
}

Activity activity_of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  Activity activity;
  std::istringstream fields = stat_fields(folder + "/stat");
  fields >> activity.state;
  int64_t user = 0, system = 0;
  std::string skipped;
  for (int field = 4; field < 14; ++field) fields >> skipped;
  fields >> user >> system;
  activity.cpu_ticks = user + system;
  activity.io_bytes = io_bytes(folder);
  activity.waits_for_disk = any_thread_waits_for_disk(folder);
  return activity;
}

double FileWork::quiet_seconds(const Activity& activity, double now) {
  if (!watching_) first_ticks_ = activity.cpu_ticks;
  if (!watching_ || activity.io_bytes - io_bytes_ >= kFileWork) since_ = now, io_bytes_ = activity.io_bytes;
  watching_ = true;
  return (now - since_) / (activity.waits_for_disk ? kDiskFactor : 1);
}

std::string FileWork::text(const Activity& activity) const {
  const int64_t ticks = activity.cpu_ticks - first_ticks_;
  if (ticks == 0) return "is " + activity.text();
  const double computed = static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return formatted("computes: %.2f s of processor time; its main thread is ", computed) + activity.text();
}

double Stillness::seconds(const Activity& activity, double now, double may_take_s) {
  const double enough_s = std::min(0.5, may_take_s / 20);
  const double ticks_per_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  const bool computed = static_cast<double>(activity.cpu_ticks - cpu_ticks_) >= enough_s * ticks_per_s;
  const bool moved = activity.io_bytes - io_bytes_ >= kLeastIo;
  if (!watching_ || computed || moved) {
    watching_ = true;
    since_ = now;
    cpu_ticks_ = activity.cpu_ticks;
    io_bytes_ = activity.io_bytes;
  }
  return (now - since_) / (activity.waits_for_disk ? kDiskFactor : 1);
}

}  // namespace drivetrain::program
