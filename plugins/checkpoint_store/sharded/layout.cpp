#include "layout.h"

#include <algorithm>
#include <cctype>

#include <drivetrain/toolkit/text.h>

namespace drivetrain::sharded {

std::string data_name(int64_t rank) { return formatted("rank-%05lld.safetensors", static_cast<long long>(rank)); }

std::string index_name(int64_t rank) { return formatted("rank-%05lld.index.json", static_cast<long long>(rank)); }

bool is_tag(const std::string& tag) {
  return !tag.empty() && tag[0] != '.' && tag.size() <= 200 && std::all_of(tag.begin(), tag.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

void check_tag(const std::string& tag) {
  if (!is_tag(tag))
    throw fail(ErrorCode::checkpoint, "\"", tag.substr(0, 200), "\" is no tag of a checkpoint\n   ",
               "a tag has letters, digits, \"-\", \"_\" and \".\", and does not begin with \".\"");
}

}  // namespace drivetrain::sharded
