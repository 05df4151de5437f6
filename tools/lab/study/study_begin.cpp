#include "study/study_begin.h"

#include <filesystem>
#include <fstream>

#include <drivetrain/error.h>

#include "base/input_file.h"
#include "base/printable.h"
#include "drivetrain/toolkit/text.h"
#include "study/cell_plan.h"
#include "study/environment.h"
#include "study/ledger.h"

namespace drivetrain::study {
namespace {

namespace fs = std::filesystem;

Value base_value(const StudyFile& study) {
  return study.base.is_null() ? Value(hash_of(read_text(study.base_path, InputKind::file, "a config"))) : study.base;
}

}  // namespace

std::string base_file(const StudyFile& study, const std::string& folder, bool again) {
  if (study.base.is_null()) return study.base_path;
  Value base = study.base;
  if (Value* const extends = const_cast<Value*>(base.find("extends")); extends && extends->is_string())
    *extends = fs::absolute(fs::path(study.path).parent_path() / extends->as_string()).lexically_normal().string();
  const std::string path = folder + "/base.json", text = base.to_json(2) + "\n";
  std::error_code unknown;
  fs::create_directories(folder, unknown);
  if (again && fs::exists(path, unknown)) return path;  // differences are told from the ledger
  std::ofstream file(path);
  if (!(file << text) || !file.flush())
    throw fail(ErrorCode::io, "study: cannot write ", one_line(path),
               "\n   make room, or choose another \"output_dir\"");
  return path;
}

Value head_of(const StudyFile& study, const Design& design, const std::string& build) {
  Value head = Value::object(), warmup = Value::object();
  warmup.set("steps", study.warmup.first), warmup.set("steady", study.warmup.steady);
  warmup.set("window", study.warmup.window), warmup.set("tolerance", study.warmup.tolerance);
  warmup.set("only_first", study.warmup.only_first), warmup.set("quantile", study.warmup.quantile);
  head.set("event", "study"), head.set("version", 1), head.set("name", study.name), head.set("time", time_now());
  head.set("study", study.text), head.set("base", base_value(study)), head.set("build", build);
  head.set("environment", environment_now(build)), head.set("warmup", warmup), head.set("gate", study.gate);
  if (const Value* const outcome = study.text.find("outcome")) head.set("outcome", *outcome);
  if (study.allow_load > 0) head.set("allow_load", study.allow_load);
  if (study.early_stop.after > 0) head.set("stop_level", study.early_stop.level);
  head.set("trim", study.trim), head.set("repeats", study.repeats.most), head.set("until", study.repeats.until),
      head.set("peak_tflops", study.peak_tflops), head.set("aliasing", design.aliasing);
  return head;
}

void check_same(const Value& before, const Value& now, const std::string& path) {
  std::vector<std::string> list;
  for (const char* key : {"study", "base", "environment"}) {
    const Value *const a = before.find(key), *const b = now.find(key);
    if (!a || !b)
      throw fail(ErrorCode::io,
                 "the ledger was not begun by `drivetrain study`\n   take its folder away and begin the study again");
    const std::string prefix = std::string(key) == "study" ? "" : key;
    if (prefix == "base" && a->is_string() && !(*a == *b))
      list.push_back("base: the file's content is another one");
    else
      for (const std::string& one : differences(*a, *b, prefix)) list.push_back(one);
  }
  if (list.empty()) return;
  throw fail(ErrorCode::config, path, ": the study has begun and is another one now\n     ", join(list, "\n     "),
             "\n   bring back what was, or begin a study of its own with another \"output_dir\"");
}

}  // namespace drivetrain::study
