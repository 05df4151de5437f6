#include "checkpoint_tools/verify.h"

#include <ostream>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "checkpoint_tools/list.h"
#include "checkpoint_tools/tool_text.h"

namespace drivetrain {
namespace {

struct Checked {
  std::string tag;
  bool removed = false;           // meanwhile, by a run that is at work
  uint64_t files = 0, bytes = 0;  // 0 where the manifest is damaged
  std::vector<std::string> problems;
};

Checked check(const StoredRun& run, const StoredTag& tag) {
  Checked checked{tag.tag, false, tag.files, tag.bytes, {}};
  try {
    checked.problems = run.open(tag)->verify();
  } catch (const Error& e) {
    checked.problems = run.damage(tag.tag);
    checked.removed = checked.problems.empty() && !run.is_there_now(tag.tag);
    if (checked.problems.empty()) checked.problems.push_back(first_line(e.what()));
  }
  return checked;
}

std::string text_of(const Checked& checked) {
  if (checked.problems.empty())
    return concat(checked.tag, ": whole, ", counted(checked.files, "file"), ", ", checked.bytes, " bytes\n");
  std::string text = checked.tag + ": damaged\n";
  for (const std::string& problem : checked.problems) text += "  " + problem + "\n";
  return text;
}

Value value_of(const Checked& checked) {
  Value value = Value::object();
  value.set("tag", checked.tag), value.set("whole", checked.problems.empty());
  value.set("files", count_value(checked.files)), value.set("bytes", count_value(checked.bytes));
  value.set("problems", strings_value(checked.problems));
  return value;
}

class Verification {
 public:
  Verification(const StoredRun& run, bool json, std::ostream& out) : run_(run), json_(json), out_(out) {}

  void add(const Checked& checked) {
    if (checked.removed) return;
    ++tags_, files_ += checked.files, bytes_ += checked.bytes;
    damaged_ += checked.problems.empty() ? 0 : 1;
    if (checked.problems.empty() && newest_whole_.empty()) newest_whole_ = checked.tag;
    if (json_)
      list_.items().push_back(value_of(checked));
    else
      out_ << printable(text_of(checked)) << std::flush;
  }

  int end() {
    if (json_)
      out_ << printable_json(value().to_json(2)) << "\n";
    else
      out_ << printable(left_overs_text(run_) + last_line());
    return damaged_ == 0 ? 0 : static_cast<int>(ErrorCode::checkpoint);
  }

 private:
  std::string last_line() const {
    return concat("checked ", counted(tags_, "tag"), ", ", counted(files_, "file"), ", ", bytes_, " bytes: ", damaged_,
                  " damaged; ",
                  newest_whole_.empty() ? "none of them is whole" : "the newest whole one is " + newest_whole_, "\n");
  }
  Value value() {
    Value value = Value::object();
    value.set("folder", run_.folder()), value.set("store", run_.store().id);
    value.set("checkpoints", list_), value.set("left_overs", left_overs_value(run_));
    value.set("tags", count_value(tags_)), value.set("files", count_value(files_));
    value.set("bytes", count_value(bytes_)), value.set("damaged", count_value(damaged_));
    value.set("newest_whole", newest_whole_.empty() ? Value() : Value(newest_whole_));
    return value;
  }

  const StoredRun& run_;
  const bool json_;
  std::ostream& out_;
  Value list_ = Value::array();
  uint64_t tags_ = 0, files_ = 0, bytes_ = 0, damaged_ = 0;
  std::string newest_whole_;
};

}  // namespace

int verify_checkpoints(const StoredRun& run, const std::string& tag, bool json, std::ostream& out) {
  Verification verification(run, json, out);
  const std::vector<std::string> unlisted = run.damaged_tags();
  for (const std::string& name : unlisted)
    if (name == tag) {
      verification.add({name, false, 0, 0, run.damage(name)});
      return verification.end();
    }
  if (!tag.empty()) {
    verification.add(check(run, run.find(tag)));
    return verification.end();
  }
  for (const StoredTag& one : run.tags()) verification.add(check(run, one));
  for (const std::string& name : unlisted) verification.add({name, false, 0, 0, run.damage(name)});
  return verification.end();
}

}  // namespace drivetrain
