#include "hosts/visible_devices.h"

#include <drivetrain/toolkit/text.h>

#include "cli/commands.h"

namespace drivetrain::program {

std::string devices_of_slots(const std::vector<int>& slots, const char* visible) {
  bool all_in_order = true;
  for (size_t i = 0; i < slots.size(); ++i) all_in_order = all_in_order && slots[i] == static_cast<int>(i);
  if (all_in_order) return "";
  const std::vector<std::string> devices = visible ? cli::split(visible, ',') : std::vector<std::string>();
  std::vector<std::string> list;
  for (const int slot : slots) {
    if (visible && static_cast<size_t>(slot) >= devices.size()) return "";
    list.push_back(visible ? devices[static_cast<size_t>(slot)] : std::to_string(slot));
  }
  return join(list, ",");
}

}  // namespace drivetrain::program
