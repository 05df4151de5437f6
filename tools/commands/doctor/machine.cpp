#include <sys/stat.h>

#include <ctime>

#include <drivetrain/toolkit/text.h>

#include "doctor/checks.h"

namespace drivetrain {
namespace {

constexpr double kLeastMemory = 1e9;        // for LibTorch and a tiny model
constexpr double kLeastDisk = 1e9;          // for a log and the weights of a small model
constexpr uint64_t kLeastFiles = 1024;      // of a rank: files of weights, sockets, pipes
constexpr uint64_t kLeastProcesses = 1024;  // threads count as processes
constexpr double kLeastShared = 128e6;      // containers have 64 MB by default
constexpr int kLeastPorts = 1000;

bool is_unlimited(uint64_t n) { return n == ~uint64_t{0}; }

void look_at_processors(Findings& findings, int64_t ranks) {
  const ProcessorLimits limits = processor_limits();
  findings.fact("processor", limits.name), findings.fact("cores", limits.cores);
  findings.fact("usable_cores", limits.share.usable());
  std::string text = concat(limits.name, ", ", limits.cores, limits.cores == 1 ? " core" : " cores");
  if (limits.share.cores < limits.cores) text += concat(", of which this process may use ", limits.share.cores);
  if (limits.share.is_cut())
    text += concat("; its control group has the time of ", formatted("%.1f", *limits.share.quota),
                   ", so a run has as many threads (\"threads\" says otherwise)");
  if (ranks > limits.share.usable())
    return findings.warning("processors", concat(text, "; ", ranks, " ranks would share them"),
                            "start no more ranks than processors");
  findings.ok("processors", text);
}

void look_at_memory(Findings& findings) {
  const MemoryLimits limits = memory_limits();
  if (limits.total == 0) return findings.ok("memory", "/proc/meminfo does not tell");
  findings.fact("memory_bytes", limits.most());
  std::string text = concat(bytes_text(limits.total), ", ", bytes_text(limits.available), " of it available");
  if (limits.swap > 0) text += concat(", ", bytes_text(limits.swap), " of swap");
  if (limits.group_limit)
    text += concat("; its control group may have ", bytes_text(*limits.group_limit), " and has ",
                   bytes_text(limits.group_used.value_or(0)));
  if (limits.free() < kLeastMemory)
    return findings.problem(
        "memory", text, "end other programs, or raise the group's limit: a run takes 1 GB and what the model needs");
  if (limits.address_space)
    return findings.warning("memory", concat(text, "; ulimit -v is ", bytes_text(*limits.address_space)),
                            "ulimit -v unlimited: LibTorch and shared memory take addresses, not memory");
  findings.ok("memory", text);
}

void look_at_open_files(Findings& findings) {
  const FileLimits limits = file_limits();
  const auto count = [](uint64_t n) { return is_unlimited(n) ? std::string("any number") : concat(n); };
  findings.fact("ulimit_n", is_unlimited(limits.open_now) ? Value("unlimited") : Value(concat(limits.open_now)));
  const std::string text = concat("a process may have ", count(limits.open_now), " open");
  if (limits.open_now >= kLeastFiles) return findings.ok("files", text);
  findings.warning("files", text, concat("ulimit -n ", count(std::min<uint64_t>(limits.open_most, 65536))));
}

// Libraries of MPI and NCCL keep in it what ranks of one host exchange.
void look_at_shared_memory(Findings& findings) {
  const char* const folder = "/dev/shm";
  const DiskPlace place = disk_place(folder);
  findings.fact("dev_shm_bytes", place.folder == folder ? place.total : 0.0);
  const std::string remedy = "mount a tmpfs there; of a container: --shm-size=1g, or --ipc=host";
  if (place.folder != folder) return findings.warning(folder, "it is not there", remedy);
  const std::string text = concat(bytes_text(place.free), " of ", bytes_text(place.total), " free");
  if (!place.unwritable.empty())
    return findings.warning(folder, concat(text, "; it cannot be written: ", place.unwritable), remedy);
  if (place.free < kLeastShared)
    return findings.warning(folder, text,
                            place.total < kLeastShared ? remedy : "remove what other programs have left there");
  findings.ok(folder, text);
}

void look_at_user_limits(Findings& findings) {
  std::string text, remedy;
  for (const UserLimit& limit : user_limits()) {
    const std::string value = limit.value ? concat(*limit.value) : "unlimited";
    text += concat(text.empty() ? "" : ", ", limit.name, " (-", limit.letter, ") ", value);
    findings.fact(concat("ulimit_", limit.letter), value);
    if (limit.letter == 'f' && limit.value) remedy = "ulimit -f unlimited: weights and checkpoints are large files";
    if (limit.letter == 'u' && limit.value && *limit.value < kLeastProcesses)
      remedy = "ulimit -u 65536: each thread of a rank counts";
  }
  if (remedy.empty()) return findings.ok("ulimit", text);
  findings.warning("ulimit", text, remedy);
}

// Ranks listen on ports that the system chooses.
void look_at_ports(Findings& findings) {
  const PortLimits limits = port_limits();
  if (limits.last == 0) return findings.ok("ports", "/proc/sys/net/ipv4/ip_local_port_range does not tell");
  const int free = limits.last - limits.first + 1 - limits.taken;
  findings.fact("free_ports", free);
  const std::string text = concat(free, " of the ports ", limits.first, " to ", limits.last, " are free");
  if (free >= kLeastPorts) return findings.ok("ports", text);
  findings.warning("ports", text, "sysctl net.ipv4.ip_local_port_range=\"32768 60999\", or end what has them open");
}

// Files order by their times: what a wrong clock writes seems older than what it was made of.
void look_at_time(Findings& findings) {
  const std::time_t now = std::time(nullptr);
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", std::gmtime(&now));
  struct stat program {};
  const bool known = stat("/proc/self/exe", &program) == 0;
  if (known && program.st_mtim.tv_sec > now + 60)
    return findings.warning("time", concat(text, "; this program was made later than that"),
                            "set the clock of this machine");
  findings.ok("time", text);
}

void look_at_disk(Findings& findings, const std::string& output_dir) {
  const DiskPlace place = disk_place(output_dir);
  if (!place.unwritable.empty())
    return findings.problem(
        "disk", concat("runs go to ", output_dir, ", and ", place.folder, " cannot be written: ", place.unwritable),
        "choose another place: --set output_dir=FOLDER");
  const std::string text =
      concat("runs go to ", output_dir, "; ", bytes_text(place.free), " of ", bytes_text(place.total), " free");
  if (place.free < kLeastDisk)
    return findings.warning("disk", text, "free some, or choose another place: --set output_dir=FOLDER");
  findings.ok("disk", text);
}

}  // namespace

void look_at_machine(Findings& findings, const std::string& output_dir, int64_t ranks) {
  findings.begin("machine");
  look_at_processors(findings, ranks);
  look_at_memory(findings);
  look_at_shared_memory(findings);
  look_at_open_files(findings);
  look_at_user_limits(findings);
  look_at_ports(findings);
  look_at_time(findings);
  look_at_disk(findings, output_dir);
}

}  // namespace drivetrain
