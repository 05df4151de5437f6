#include "data_tools/json_line.h"

#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

// Takes the text under a key of the outermost object; the last one if the key is there twice.
class KeyFinder : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, KeyFinder> {
 public:
  KeyFinder(const std::string& key, std::string& text) : key_(key), text_(text) {}
  bool Default() { return other(); }
  bool RawNumber(const char*, rapidjson::SizeType, bool) { return other(); }
  bool String(const char* data, rapidjson::SizeType length, bool) {
    if (!wanted_) return other();
    text_.assign(data, length);
    found_ = true, wrong_ = wanted_ = false;
    return true;
  }
  bool Key(const char* data, rapidjson::SizeType length, bool) {
    wanted_ = depth_ == 1 && key_ == std::string_view(data, length);
    return true;
  }
  bool StartObject() {
    is_object_ = is_object_ || depth_ == 0;
    return other(), ++depth_, true;
  }
  bool EndObject(rapidjson::SizeType) { return --depth_, true; }
  bool StartArray() { return other(), ++depth_, true; }
  bool EndArray(rapidjson::SizeType) { return --depth_, true; }

  std::string problem() const {
    if (!is_object_) return "is no JSON object";
    if (wrong_) return concat("\"", key_, "\" is no text");
    return found_ ? "" : concat("has no \"", key_, "\"");
  }

 private:
  bool other() {
    wrong_ = wrong_ || wanted_;
    wanted_ = false;
    return true;
  }
  const std::string& key_;
  std::string& text_;
  size_t depth_ = 0;
  bool wanted_ = false, found_ = false, wrong_ = false, is_object_ = false;
};

// Whether an escape is the second half of a surrogate pair without the first: of the other one the reader says so.
bool has_lone_half(std::string_view line) {
  const auto half = [&](size_t at, const char* letters) {  // "\ud8", "\uDC": the letter behind \ud
    return at + 3 < line.size() && line[at] == '\\' && line[at + 1] == 'u' && (line[at + 2] | 32) == 'd' &&
           std::string_view(letters).find(static_cast<char>(line[at + 3] | 32)) != std::string_view::npos;
  };
  for (size_t at = line.find('\\'); at < line.size(); at = line.find('\\', at)) {
    if (half(at, "cdef")) return true;
    at += half(at, "89ab") && half(at + 6, "cdef") ? 12 : 2;
  }
  return false;
}

}  // namespace

std::string read_json_line(std::string_view line, const std::string& key, std::string& text) {
  KeyFinder finder(key, text);
  rapidjson::MemoryStream stream(line.data(), line.size());
  rapidjson::Reader reader;
  constexpr unsigned kFlags = rapidjson::kParseIterativeFlag | rapidjson::kParseNumbersAsStringsFlag;
  const rapidjson::ParseResult result = reader.Parse<kFlags>(stream, finder);
  if (result.IsError())
    return concat("is no JSON: ", rapidjson::GetParseError_En(result.Code()), " Column ", result.Offset() + 1);
  if (has_lone_half(line)) return "has half of a surrogate pair, which is no character: \\udc00 to \\udfff alone";
  return finder.problem();
}

}  // namespace drivetrain
