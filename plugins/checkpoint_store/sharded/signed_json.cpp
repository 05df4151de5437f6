#include "signed_json.h"

#include <utility>

#include <drivetrain/toolkit/files/read_file.h>

#include "layout.h"

namespace drivetrain::sharded {
namespace {

constexpr const char* kBegin = "{\"xxh3_128\": \"";
constexpr const char* kEnd = "\",\n";

std::string first_line(const Digest& digest) { return kBegin + digest.text() + kEnd; }

void check_format(const std::string& path, const Value& value, const std::string& format) {
  const Value* found = value.find("format");
  if (!found || !found->is_string() || found->as_string() != format)
    throw damaged(path, "is no ", format, " file but ", found ? found->to_json() : "of another kind");
  const Value* version = value.find("version");
  if (!version || !version->is_int()) throw damaged(path, "does not say the version of its form");
  if (version->as_int() > kVersion) throw NewerVersion(path, version->as_int());
  if (version->as_int() < 1) throw damaged(path, "is of version ", version->as_int(), ", which there never was");
}

}  // namespace

std::string signed_json(const Value& body) {
  const std::string text = body.to_json(1).substr(1);  // without its opening brace
  return first_line(digest_of(text)) + text;
}

Value read_signed_json(const std::string& path, const std::string& text, const std::string& format) {
  const size_t length = first_line({}).size();
  if (text.size() <= length)
    throw damaged(path, "has ", text.size(), " bytes, and its first line alone should have ", length,
                  ": the file was cut short");
  const Digest digest = digest_of(std::string_view(text).substr(length));
  if (text.substr(0, length) != first_line(digest)) {
    if (text.compare(0, std::string_view(kBegin).size(), kBegin) != 0)
      throw damaged(path, "does not begin with ", kBegin, ": the file is foreign or damaged");
    throw damaged(path, "bytes 0 to ", text.size(), " have the digest ", digest.text(), ", and the first line says ",
                  text.substr(std::string_view(kBegin).size(), 32), ": the file was cut short, edited or damaged");
  }
  Value value;
  try {
    value = parse_json(text, path);
  } catch (const Error& e) {
    throw damaged(path, "is not JSON: ", e.what());
  }
  check_format(path, value, format);
  return value;
}

std::string read_text(const std::string& path) {
  constexpr uint64_t kMost = uint64_t{1} << 30;
  try {
    auto text = read_file(path, kMost);
    if (text) return std::move(*text);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::checkpoint) throw;
    throw damaged(path, std::string(e.what()).substr(path.size() + 2));
  }
  throw damaged(path, "is missing");
}

}  // namespace drivetrain::sharded
