// Unicode's normal form C. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace drivetrain::bpe {

// `text`, valid UTF-8, in NFC: itself if it is that already, else `buffer`, which is overwritten.
std::string_view to_nfc(std::string_view text, std::string& buffer);

}  // namespace drivetrain::bpe
