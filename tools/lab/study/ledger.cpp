#include "study/ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include <drivetrain/error.h>

#include "base/input_file.h"
#include "base/printable.h"

namespace drivetrain::study {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "ledger.jsonl";
constexpr const char* kNames[] = {"ok", "oom", "refused", "timeout", "crashed", "nan", "skipped"};

struct Lines {
  std::vector<Value> whole;
  int64_t cut = 0;    // the last line, if it is cut
  bool ended = true;  // the file ends with a line's end
};

// A line that was cut by a crash is followed by {"event": "cut"}, which the next start adds.
Lines lines_of(const std::string& text, const std::string& path) {
  Lines lines;
  lines.ended = text.empty() || text.back() == '\n';
  std::istringstream stream(text);
  int64_t number = 0, broken = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    Value value;
    try {
      value = parse_json(line, path);
    } catch (const Error&) {
      if (broken > 0) break;
      broken = number;
      continue;
    }
    const Value* const event = value.find("event");
    const bool tells_cut = event && event->is_string() && event->as_string() == "cut";
    if (broken > 0 && !tells_cut) break;
    if (broken > 0) broken = 0;
    if (!tells_cut) lines.whole.push_back(std::move(value));
  }
  if (broken > 0 && broken != number)
    throw fail(ErrorCode::io, one_line(path), ":", broken,
               "  this line of the ledger is damaged, and lines follow it\n   ",
               "a ledger is only ever added to: bring the file back from a copy, or choose another output_dir");
  lines.cut = broken;
  return lines;
}

program::Descriptor opened(const std::string& path) {
  program::Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file.get() < 0)
    throw fail(ErrorCode::io, "study: cannot open ", one_line(path), ": ", std::strerror(errno),
               "\n   check its permissions, or choose another \"output_dir\"");
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw fail(ErrorCode::config, "study: another process is at work in ",
               one_line(fs::path(path).parent_path().string()),
               "\n   wait for its end, stop it, or choose another \"output_dir\"");
  return file;
}

}  // namespace

const char* state_name(State state) { return kNames[static_cast<int>(state)]; }

State state_called(const std::string& name) {
  for (int i = 0; i < 7; ++i)
    if (name == kNames[i]) return static_cast<State>(i);
  throw fail(ErrorCode::io, "the ledger has a state \"", shown(name), "\" that this version does not know");
}

Ledger::Ledger(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder))
    throw fail(ErrorCode::io, "study: cannot create ", one_line(folder), ": ",
               error ? error.message() : "a file has that name", "\n   choose another \"output_dir\"");
  path_ = folder + "/" + kFile;
  file_ = opened(path_);
  const Lines lines = lines_of(read_text(path_, InputKind::file, "a ledger"), path_);
  lines_ = lines.whole, cut_line_ = lines.cut;
  if (!lines.ended && lines.cut == 0) write("\n");
  if (lines.cut == 0) return;
  Value cut = Value::object();
  cut.set("event", "cut"), cut.set("line", lines.cut);
  write((lines.ended ? "" : "\n") + cut.to_json() + "\n");
}

void Ledger::write(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file_.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw fail(ErrorCode::io, "study: cannot write ", one_line(path_), ": ", std::strerror(errno),
                 "\n   make room and go on with `drivetrain study FILE --resume`: what is in the ledger stays");
    done += static_cast<size_t>(n);
  }
  if (fsync(file_.get()) != 0 && errno != EINVAL)
    throw fail(ErrorCode::io, "study: cannot write ", one_line(path_), ": ", std::strerror(errno));
}

void Ledger::add(const Value& line) { write(line.to_json() + "\n"); }

std::vector<Value> read_ledger(const std::string& folder) {
  const std::string path = folder + "/" + kFile;
  std::error_code unknown;
  if (!fs::exists(path, unknown))
    throw fail(ErrorCode::config, one_line(folder), " holds no study: there is no ", kFile,
               "\n   name the \"output_dir\" of a study");
  return lines_of(read_text(path, InputKind::file, "a ledger"), path).whole;
}

std::vector<std::string> differences(const Value& before, const Value& now, const std::string& path) {
  if (before == now) return {};
  if (!before.is_object() || !now.is_object())
    return {concat(path, ": ", shown(before.to_json()), " when it began, ", shown(now.to_json()), " now")};
  std::vector<std::string> list;
  std::set<std::string> keys;
  for (const Value* const side : {&before, &now})
    for (const Value::Member& m : side->members()) {
      if (!keys.insert(m.key).second) continue;
      const Value *const a = before.find(m.key), *const b = now.find(m.key);
      const std::string at = path.empty() ? m.key : path + "." + m.key;
      if (!a)
        list.push_back(concat(at, ": was not there when it began, ", shown(b->to_json()), " now"));
      else if (!b)
        list.push_back(concat(at, ": ", shown(a->to_json()), " when it began, is not there now"));
      else
        for (const std::string& one : differences(*a, *b, at)) list.push_back(one);
    }
  if (list.empty()) list.push_back(concat(path.empty() ? "the study" : path, ": its keys are in another order"));
  return list;
}

}  // namespace drivetrain::study
