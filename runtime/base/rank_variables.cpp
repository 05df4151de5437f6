#include "base/rank_variables.h"

#include <fcntl.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

constexpr int64_t kMostCores = 1 << 20;

// Which every launcher gives that counts ranks by these names.
struct Count {
  const char* name;
  int64_t RankStart::*value;
};
constexpr Count kCounts[] = {{"RANK", &RankStart::rank},
                             {"WORLD_SIZE", &RankStart::world_size},
                             {"LOCAL_RANK", &RankStart::local_rank},
                             {"LOCAL_WORLD_SIZE", &RankStart::local_size},
                             {"MASTER_PORT", &RankStart::master_port}};
constexpr const char* kMasterAddr = "MASTER_ADDR";
constexpr const char* kMasterListens = "DRIVETRAIN_MASTER_LISTENS";
constexpr const char* kBoundCores = "DRIVETRAIN_BOUND_CORES";

struct Text {
  const char* name;
  std::string RankStart::*value;
};
constexpr Text kTexts[] = {{RankStart::kToken, &RankStart::token},
                           {RankStart::kLaunchId, &RankStart::launch_id},
                           {RankStart::kBegunFolder, &RankStart::begun_folder},
                           {RankStart::kConfigCopy, &RankStart::config_copy},
                           {RankStart::kConfigFolder, &RankStart::config_folder}};

struct Inherits {
  const char* name;
  int RankStart::*value;
};
constexpr Inherits kInherited[] = {{"DRIVETRAIN_LISTEN_FD", &RankStart::listen_fd},
                                   {"DRIVETRAIN_NEWS_FD", &RankStart::news_fd},
                                   {"DRIVETRAIN_RESTART_POINTS_FD", &RankStart::restart_points_fd},
                                   {"DRIVETRAIN_FLIGHT_FD", &RankStart::flight_fd}};

template <class Number>
Number read_number(const char* name, const char* text, int64_t least, int64_t most, const std::string& wanted) {
  Number number = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, failed] = std::from_chars(text, end, number);
  if (failed != std::errc() || stop != end || number < least || number > most)
    throw fail(ErrorCode::config, "environment variable ", name, "=", text, ": wanted ", wanted,
               "; only `drivetrain launch` sets it");
  return number;
}

}  // namespace

std::vector<std::string> RankStart::write() const {
  std::vector<std::string> list{kMasterAddr + ("=" + master_addr)};
  for (const Count& count : kCounts) list.push_back(count.name + ("=" + std::to_string(this->*count.value)));
  if (master_listens) list.push_back(kMasterListens + std::string(*master_listens ? "=1" : "="));
  for (const Text& text : kTexts)
    if (!(this->*text.value).empty()) list.push_back(text.name + ("=" + this->*text.value));
  if (bound_cores > 0) list.push_back(kBoundCores + ("=" + std::to_string(bound_cores)));
  return list;
}

std::vector<std::pair<const char*, int>> RankStart::descriptors() const {
  std::vector<std::pair<const char*, int>> list;
  for (const Inherits& one : kInherited) list.emplace_back(one.name, this->*one.value);
  return list;
}

RankStart RankStart::read(const std::function<const char*(const char* name)>& lookup) {
  RankStart start;
  if (const char* const listens = lookup(kMasterListens)) start.master_listens = *listens != 0;
  for (const Text& text : kTexts)
    if (const char* const value = lookup(text.name)) start.*text.value = value;
  if (const char* const cores = lookup(kBoundCores))
    start.bound_cores = read_number<int64_t>(kBoundCores, cores, 1, kMostCores, "a number of cores");
  for (const Inherits& one : kInherited)
    if (const char* const value = lookup(one.name))
      start.*one.value = read_number<int>(one.name, value, 0, 1 << 20, "a descriptor that is open");
  return start;
}

RankStart RankStart::read() {
  return read([](const char* name) -> const char* { return std::getenv(name); });
}

std::vector<const char*> RankStart::names() {
  std::vector<const char*> list{kMasterAddr, kMasterListens, kBoundCores};
  for (const Count& count : kCounts) list.push_back(count.name);
  for (const Text& text : kTexts) list.push_back(text.name);
  for (const Inherits& one : kInherited) list.push_back(one.name);
  return list;
}

int taken_over(int descriptor) {
  if (descriptor >= 0 && ::fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0)
    throw fail(ErrorCode::config, "descriptor ", descriptor,
               ", which this rank should have from its launcher, is not open; only `drivetrain launch` sets variables "
               "DRIVETRAIN_..._FD");
  return descriptor;
}

}  // namespace drivetrain
