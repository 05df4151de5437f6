#include "study/limits.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"

namespace drivetrain::study {
namespace {

std::string gigabytes(double bytes) { return formatted("%.3g GB", bytes / 1e9); }

// All ranks of the run are on this host, and their tensors are in the memory of this device.
bool is_here(const CellPlan& plan, const char* name) {
  const Value* const device = plan.resolved.find("device");
  return plan.hosts.empty() && device && device->is_string() && device->as_string() == name;
}

std::string memory_verdict(const StudyFile& study, const CellPlan& plan, const HostMemory& here) {
  const double bytes = plan.planned_bytes(), all = bytes * static_cast<double>(plan.world_size);
  if (!plan.too_large.empty()) return plan.too_large;
  if (study.memory_limit > 0 && bytes > static_cast<double>(study.memory_limit))
    return concat(gigabytes(bytes), " a rank are planned, \"memory_limit_bytes\" is ",
                  gigabytes(static_cast<double>(study.memory_limit)));
  if (here.host > 0 && all > here.host && is_here(plan, "cpu"))
    return concat(gigabytes(all), " are planned for its ranks, this host has ", gigabytes(here.host));
  if (here.gpu > 0 && bytes > here.gpu && is_here(plan, "cuda"))
    return concat(gigabytes(bytes), " a rank are planned, a GPU here has ", gigabytes(here.gpu));
  return "";
}

// Why a run of the cell has no such outcome: it ends before; "": it may have it.
std::string out_of_reach(const Outcome& outcome, const CellPlan& plan) {
  const auto steps = static_cast<double>(plan.steps());
  const double tokens = steps * static_cast<double>(plan.batch("train_batch_size") * plan.seq_length());
  if (outcome.at == Outcome::At::step && steps > 0 && outcome.point > steps)
    return concat("\"outcome\" is ", shown(outcome.name()), ", and its run has ", plan.steps(), " steps");
  if (outcome.at == Outcome::At::tokens && tokens > 0 && outcome.point > tokens)
    return concat("\"outcome\" is ", shown(outcome.name()), ", and its run has ", static_cast<int64_t>(tokens),
                  " tokens at most");
  return "";
}

// Outcomes of what was learned, and nothing that differs from repeat to repeat. Speeds do differ.
bool repeats_one_run(const StudyFile& study) {
  const auto is_learned = [](const Outcome& outcome) {
    const std::string last = outcome.metric.substr(outcome.metric.rfind('/') + 1);
    for (const char* end : {"loss", "perplexity", "bits_per_byte", "accuracy"})
      if (last.ends_with(end)) return true;
    return last == "acc" || last == "acc_norm";
  };
  return study.repeats.most > 1 && !study.seed_per_repeat && !study.outcomes.empty() &&
         std::all_of(study.outcomes.begin(), study.outcomes.end(), is_learned);
}

double run_seconds(const CellPlan& plan) { return plan.step_s * static_cast<double>(plan.steps()); }

// CUDA_VISIBLE_DEVICES as numbers; nothing where it is not set, or names GPUs in another way.
std::optional<std::set<unsigned>> visible_gpus() {
  const char* const text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!text) return std::nullopt;
  std::set<unsigned> numbers;
  std::istringstream stream(text);
  for (std::string one; std::getline(stream, one, ',');) {
    if (one == "-1") break;  // none from here on
    if (one.empty() || one.size() > 4 || one.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
    numbers.insert(static_cast<unsigned>(std::stoul(one)));
  }
  return numbers;
}

}  // namespace

// The functions are those of nvml.h, found by name since the library comes with the driver. 0 is success.
HostMemory memory_here(const std::string& nvml) {
  HostMemory here;
  here.host = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  void* const library = dlopen(nvml.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return here;
  struct Bytes {
    unsigned long long total, free, used;
  };
  const auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  const auto count = reinterpret_cast<int (*)(unsigned*)>(dlsym(library, "nvmlDeviceGetCount_v2"));
  const auto handle = reinterpret_cast<int (*)(unsigned, void**)>(dlsym(library, "nvmlDeviceGetHandleByIndex_v2"));
  const auto memory = reinterpret_cast<int (*)(void*, Bytes*)>(dlsym(library, "nvmlDeviceGetMemoryInfo"));
  const auto end = reinterpret_cast<int (*)()>(dlsym(library, "nvmlShutdown"));
  const std::optional<std::set<unsigned>> visible = visible_gpus();
  unsigned gpus = 0;
  const bool begun = init && count && handle && memory && init() == 0;
  if (begun && count(&gpus) == 0)
    for (unsigned i = 0; i < gpus; ++i) {
      if (visible && !visible->contains(i)) continue;
      void* device = nullptr;
      Bytes bytes{};
      if (handle(i, &device) != 0 || memory(device, &bytes) != 0) continue;
      const auto total = static_cast<double>(bytes.total);
      here.gpu = here.gpu > 0 ? std::min(here.gpu, total) : total;
    }
  if (begun && end) end();
  dlclose(library);
  return here;
}

ExpectedEnd expected_end(const StudyFile& study, const CellPlan& plan, const HostMemory& here) {
  ExpectedEnd end;
  if (!plan.refusal.empty()) return end;
  end.too_large = memory_verdict(study, plan, here);
  if (run_seconds(plan) > study.timeout_s)
    end.too_slow = concat("its steps alone are planned to ", formatted("take %.4g s", run_seconds(plan)),
                          ", \"timeout_s\" is ", study.timeout_s, " s");
  for (const Outcome& outcome : study.outcomes)
    if (end.too_short.empty()) end.too_short = out_of_reach(outcome, plan);
  return end;
}

void check_reach(const StudyFile& study, const std::vector<CellPlan>& plans) {
  for (const Outcome& outcome : study.outcomes)
    if (const std::string why = out_of_reach(outcome, plans.front()); !why.empty())
      throw fail(ErrorCode::config, study.path, ": of the reference cell ", why,
                 "\n   choose an earlier point, or raise \"train_steps\"");
}

std::string advice_on_seeds(const StudyFile& study) {
  if (!repeats_one_run(study)) return "";
  return "every repeat of a cell has the same seed, so repeats learn the same and say nothing of chance: "
         "\"seed_per_repeat\": true gives each a seed of its own";
}

std::vector<std::string> expected_failures(const StudyFile& study, const std::vector<Cell>& cells,
                                           const std::vector<CellPlan>& plans, const HostMemory& here) {
  std::vector<std::string> lines;
  double all_s = 0;
  for (size_t i = 0; i < cells.size(); ++i) {
    const CellPlan& plan = plans[i];
    if (!plan.refusal.empty() || cells[i].is_noise) continue;
    all_s += run_seconds(plan) * static_cast<double>(study.repeats.most);
    const ExpectedEnd end = expected_end(study, plan, here);
    if (!end.too_large.empty())
      lines.push_back(concat(cells[i].id, " will be out of memory by its plan: ", end.too_large));
    if (!end.too_slow.empty())
      lines.push_back(concat(cells[i].id, " will not end in time by its plan: ", end.too_slow));
    if (!end.too_short.empty())
      lines.push_back(concat(cells[i].id, " will not have an outcome by its plan: ", end.too_short));
  }
  all_s /= static_cast<double>(study.dispatch.slots);
  if (study.budget_s > 0 && all_s > study.budget_s)
    lines.push_back(concat("\"budget_s\" is ", study.budget_s, " s: the steps of all runs are planned to ",
                           formatted("take %.4g s, and the last runs will be skipped", all_s)));
  return lines;
}

}  // namespace drivetrain::study
