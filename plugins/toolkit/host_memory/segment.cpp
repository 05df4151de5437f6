#include <drivetrain/toolkit/host_memory/segment.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/host.h>

namespace drivetrain::toolkit::host_memory {
namespace {

constexpr const char* kName = "drivetrain-communicator";
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Files of ranks that are threads of this process. The key holds the pid because a fork inherits the table.
struct OwnFiles {
  std::mutex mutex;
  std::map<std::pair<pid_t, int>, std::weak_ptr<Mapping>> mappings;
};
OwnFiles& own_files() {
  static OwnFiles files;
  return files;
}

std::string limit_text(decltype(RLIMIT_AS) which, const char* unit = " bytes") {
  rlimit limit = {};
  if (getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return concat(limit.rlim_cur, unit);
}

int64_t address_space_in_use() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

Descriptor create_file(int64_t bytes) {
  Descriptor file(memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0)
    throw fail(ErrorCode::out_of_memory, "cannot create shared memory: ", strerror(errno),
               errno != EMFILE
                   ? ""
                   : concat(" (at most ", limit_text(RLIMIT_NOFILE, " open files"), "; raise it with `ulimit -n`)"));
  rlimit limit = {};  // asked for first: the kernel's answer to a file beyond it may be a signal
  const bool limited = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(bytes);
  if (limited || ftruncate(file.get(), bytes) != 0)
    throw fail(ErrorCode::out_of_memory, "this rank's shared memory needs a file of ", bytes, " bytes: ",
               limited ? concat("the size of files is limited to ", limit_text(RLIMIT_FSIZE),
                                " (`ulimit -f`; raise it with `ulimit -f unlimited`)")
                       : strerror(errno));
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0)
    throw fail(ErrorCode::communication, "cannot seal shared memory: ", strerror(errno));
  return file;
}

[[noreturn]] void refuse(const std::string& path, const std::string& problem) {
  throw fail(ErrorCode::communication, "its shared memory ", path, " is refused: ", problem);
}

std::string link_text(const std::string& path) {
  char text[4096] = "";
  const ssize_t length = readlink(path.c_str(), text, sizeof text - 1);
  return length < 0 ? concat("nothing that can be read (", strerror(errno), ")") : std::string(text, length);
}

// Only a process of this user: a rank that runs as root could open anybody's.
void check_owner(pid_t pid) {
  const std::string path = concat("/proc/", pid);
  struct stat status = {};
  if (pid <= 0 || stat(path.c_str(), &status) != 0)
    refuse(path, "there is no such process; all ranks must run on one host and in one pid namespace");
  if (status.st_uid != geteuid())
    refuse(path, concat("the process is user ", status.st_uid, "'s, this rank is user ", geteuid(), "'s"));
}

// Found first without opening what lies there, which might be a device or a pipe that answers to being opened.
Descriptor open_checked(const std::string& path, int64_t bytes) {
  const Descriptor found(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (found.get() < 0)
    refuse(path, concat(strerror(errno), "; all ranks must run as one user and in one pid namespace"));
  const std::string own = concat("/proc/self/fd/", found.get());
  struct stat status = {};
  const bool known = fstat(found.get(), &status) == 0;
  const std::string name = link_text(own);
  if (!known || !S_ISREG(status.st_mode) || status.st_nlink != 0 || name.rfind(concat("/memfd:", kName), 0) != 0)
    refuse(path, concat("wanted an anonymous file named ", kName, ", found ", name));
  if (status.st_uid != geteuid()) refuse(path, concat("the file is user ", status.st_uid, "'s"));
  if (status.st_size != bytes)
    refuse(path, concat("it has ", status.st_size, " bytes where ", bytes, " were announced"));
  Descriptor file(open(own.c_str(), O_RDWR | O_CLOEXEC));
  if (file.get() < 0) refuse(path, strerror(errno));
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) refuse(path, "it is not sealed against a change of size");
  return file;
}

std::shared_ptr<Mapping> own_mapping(pid_t pid, int fd) {
  if (pid != getpid()) return nullptr;
  OwnFiles& files = own_files();
  const std::lock_guard lock(files.mutex);
  const auto known = files.mappings.find({pid, fd});
  return known == files.mappings.end() ? nullptr : known->second.lock();
}

}  // namespace

std::string host_mark() {
  char space[64] = "?";
  if (readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) strcpy(space, "?");
  return boot_id() + "/" + space;
}

std::string Token::text() const { return concat(high, "-", low); }

Token random_token() {
  Token token;
  if (getrandom(&token, sizeof token, 0) != sizeof token)
    throw fail(ErrorCode::communication, "the system gives no random bytes: ", strerror(errno));
  return token;
}

Mapping::Mapping(int fd, int64_t bytes) : bytes_(bytes) {
  void* address = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (address == MAP_FAILED) {
    const int reason = errno;
    throw fail(ErrorCode::out_of_memory, "cannot map ", bytes, " bytes of shared memory: ", strerror(reason),
               "; this process has ", address_space_in_use(), " bytes of address space, allowed are ",
               limit_text(RLIMIT_AS), " (`ulimit -v`; raise it with `ulimit -v unlimited`)");
  }
  base_ = static_cast<char*>(address);
  madvise(address, static_cast<size_t>(bytes), MADV_DONTDUMP);
}

Mapping::~Mapping() { munmap(base_, static_cast<size_t>(bytes_)); }

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Segment::Segment(int64_t bytes, const Token& token)
    : fd_(create_file(bytes)), mapping_(std::make_shared<Mapping>(fd_.get(), bytes)) {
  memcpy(mapping_->base(), &token, sizeof token);
  OwnFiles& files = own_files();
  const std::lock_guard lock(files.mutex);
  std::erase_if(files.mappings, [](const auto& entry) { return entry.second.expired(); });
  files.mappings[{getpid(), fd()}] = mapping_;
}

std::shared_ptr<Mapping> map_peer_segment(const PeerSegment& wanted) {
  const std::string path = concat("/proc/", wanted.pid, "/fd/", wanted.fd);
  if (wanted.fd < 0 || wanted.bytes < kPage || wanted.bytes % kPage != 0)
    refuse(path, concat(wanted.bytes, " bytes in descriptor ", wanted.fd, " were announced"));
  std::shared_ptr<Mapping> mapping = own_mapping(wanted.pid, wanted.fd);
  if (mapping == nullptr) {
    check_owner(wanted.pid);
    mapping = std::make_shared<Mapping>(open_checked(path, wanted.bytes).get(), wanted.bytes);
  }
  if (mapping->bytes() != wanted.bytes || memcmp(mapping->base(), &wanted.token, sizeof wanted.token) != 0)
    refuse(path, "it does not carry the token that was announced; it belongs to another run");
  return mapping;
}

}  // namespace drivetrain::toolkit::host_memory
