// Bytes as hexadecimal digits, two for each. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace drivetrain {

inline std::string hex_text(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    for (const int shift : {4, 0}) text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> shift & 15];
  return text;
}

}  // namespace drivetrain
