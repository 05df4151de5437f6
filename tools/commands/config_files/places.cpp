#include "config_files/places.h"

#include "device/open_device.h"

namespace drivetrain {

void expand_places(Value& config) {
  constexpr const char* kTorch = "${torch}";
  if (config.is_string() && config.as_string().rfind(kTorch, 0) == 0) {
    Value expanded(torch_folder() + config.as_string().substr(8));
    expanded.where = config.where, expanded.key_where = config.key_where;
    config = std::move(expanded);
  } else if (config.is_array()) {
    for (Value& item : config.items()) expand_places(item);
  } else if (config.is_object()) {
    for (auto& member : config.members()) expand_places(member.value);
  }
}

}  // namespace drivetrain
