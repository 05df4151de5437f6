// A safetensors file in one call.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "state/safetensors_writer.h"

namespace drivetrain {

// `fetch` is asked for each item once.
inline void write_safetensors(const std::string& path, const std::vector<SafetensorsItem>& items,
                              const SafetensorsMetadata& metadata,
                              const std::function<at::Tensor(const std::string& name)>& fetch) {
  SafetensorsWriter writer(path, items, metadata);
  for (const SafetensorsItem& item : items) writer.put(item.name, fetch(item.name));
  writer.finish();
}

}  // namespace drivetrain
