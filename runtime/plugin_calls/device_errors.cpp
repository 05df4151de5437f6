#include "plugin_calls/device_errors.h"

#include <drivetrain/export.h>
#include <drivetrain/toolkit/text.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string_view>

#include "contract/device_runtime.h"
#include "device/holders.h"
#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

struct Row {
  int number;
  const char* name;
  std::string_view in_text;
  ErrorCode code;
  const char *what, *remedy;
};

#define ROW(number, name, words, code, what, remedy) {number, #name, words, ErrorCode::code, what, remedy},
constexpr Row kRows[] = {
#include "plugin_calls/device_errors.inc"
};

constexpr int kNoMemory = 2;

const Row* row_of(const c10::Error& e, std::string text) {
  const auto* const told = dynamic_cast<const c10::AcceleratorError*>(&e);
  constexpr std::string_view kOfDriver = "CUDA driver error: ";  // the same words, and no number
  if (const size_t at = text.find(kOfDriver); at != std::string::npos)
    text.replace(at, kOfDriver.size(), "CUDA error: ");
  for (const Row& row : kRows)
    if (told ? row.number == told->get_error_code() : text.find(row.in_text) != std::string::npos) return &row;
  return nullptr;
}

// Of this thread's GPU; nothing where there is none, or where it cannot even be asked for its name.
std::optional<DeviceFacts> own_device() {
  if (work_rank().device < 0 || !device_runtime()) return std::nullopt;
  try {
    return device_runtime()->facts(work_rank().device);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string device_place() {
  const WorkRank& rank = work_rank();
  std::string gpu;
  if (rank.device >= 0) gpu = concat("GPU ", rank.device, " ");
  if (const auto facts = own_device()) gpu += concat("(", facts->name, ", ", facts->uuid, ") ");
  const std::string step = rank.step_place ? rank.step_place() : "", unit = last_unit_call();
  return concat("\n   ", gpu, gpu.empty() ? "" : "of ", "rank ", rank.rank, step.empty() ? "" : ", " + step,
                unit.empty() ? "" : "; last unit: " + unit);
}

std::string device_memory_place() {
  const auto facts = own_device();
  return device_place() + (facts ? holders_text(holders_of_device(facts->uuid)) : "");
}

std::optional<Situation> device_situation(const c10::Error& e) {
  const std::string text = e.what_without_backtrace();
  const Row* const row = row_of(e, text);
  if (!row) return std::nullopt;
  const std::string place = row->number == kNoMemory ? device_memory_place() : device_place();
  return Situation{row->code, concat(row->what, ": ", first_line(text), " (", row->name, ")", place), row->remedy};
}

}  // namespace drivetrain

extern "C" DRIVETRAIN_API int drivetrain_device_error(char* text, size_t size) {
  using namespace drivetrain;
  try {
    if (std::current_exception()) std::rethrow_exception(std::current_exception());
  } catch (const c10::Error& e) {
    const auto situation = device_situation(e);
    if (!situation || size == 0) return 0;
    const std::string said = situation->text();
    const size_t length = std::min(said.size(), size - 1);
    std::memcpy(text, said.data(), length);
    text[length] = 0;
    return static_cast<int>(situation->code);
  } catch (...) {  // somebody else's
  }
  return 0;
}
