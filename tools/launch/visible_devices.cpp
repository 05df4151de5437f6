#include "launch/visible_devices.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "cli/commands.h"
#include "launch/meeting.h"

namespace drivetrain::program {
namespace {

bool are_first_in_order(const std::vector<int>& slots) {
  for (size_t i = 0; i < slots.size(); ++i)
    if (slots[i] != static_cast<int>(i)) return false;
  return true;
}

std::vector<std::string> entries_of(const char* visible) {
  return visible && *visible ? cli::split(visible, ',') : std::vector<std::string>();
}

}  // namespace

void check_slots(const std::vector<int>& slots, const char* visible) {
  const std::vector<std::string> devices = entries_of(visible);
  if (are_first_in_order(slots) || devices.empty() || devices.front() == "-1") return;
  for (const int slot : slots)
    if (static_cast<size_t>(slot) >= devices.size())
      throw HostError(2, "slot " + std::to_string(slot) + " was chosen, and CUDA_VISIBLE_DEVICES=" + shown(visible) +
                             " there shows " + std::to_string(devices.size()) +
                             (devices.size() == 1 ? " GPU" : " GPUs") + ", slot 0" +
                             (devices.size() == 1 ? "" : " to slot " + std::to_string(devices.size() - 1)) +
                             "; choose of these, or change the variable");
}

std::string devices_of_slots(const std::vector<int>& slots, const char* visible) {
  if (are_first_in_order(slots)) return "";
  const std::vector<std::string> devices = entries_of(visible);
  std::vector<std::string> list;
  for (const int slot : slots) {
    if (visible && static_cast<size_t>(slot) >= devices.size()) return "";
    list.push_back(visible ? devices[static_cast<size_t>(slot)] : std::to_string(slot));
  }
  return join(list, ",");
}

std::string own_device(const std::string& visible, int local_rank) {
  const std::vector<std::string> devices = entries_of(visible.c_str());
  const bool any_mig = std::any_of(devices.begin(), devices.end(), [](auto& one) { return one.starts_with("MIG-"); });
  return any_mig && static_cast<size_t>(local_rank) < devices.size() ? devices[static_cast<size_t>(local_rank)] : "";
}

}  // namespace drivetrain::program
