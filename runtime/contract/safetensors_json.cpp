// RapidJSON's SAX reader feeds a state machine that knows the one form a header may have. It refuses a value as soon as
// it begins wrongly, so nesting never goes deeper than the form and needs no limit of its own.
#include "contract/safetensors_json.h"

#include <limits>
#include <unordered_set>

#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text/utf8.h>

#include "base/printable.h"

namespace drivetrain {
namespace {

constexpr size_t kMaxTensors = 1'000'000, kMaxNameBytes = 4096, kMaxDims = 64;

class SafetensorsJsonReader : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, SafetensorsJsonReader> {
 public:
  explicit SafetensorsJsonReader(SafetensorsHeader& header) : header_(header) {}
  const std::string& problem() const { return problem_; }

  bool Default() { return unexpected("a value of another type"); }
  bool Uint(unsigned n) { return Uint64(n); }

  bool Uint64(uint64_t n) {
    if (place_ == Place::in_shape) return add_size(n);
    if (place_ != Place::in_offsets) return unexpected("a number");
    offsets_.push_back(n);
    return offsets_.size() <= 2 || refuse(of_tensor(), "data_offsets must be two integers");
  }

  bool String(const char* text, rapidjson::SizeType n, bool) {
    if (place_ == Place::metadata_value) {
      header_.metadata[key_] = std::string(text, n);
      return true;
    }
    if (place_ != Place::dtype) return unexpected("a string");
    entry().dtype = find_safetensors_dtype(std::string_view(text, n));
    return entry().dtype || refuse(of_tensor(), "unknown dtype \"", std::string_view(text, n), "\"");
  }

  bool StartObject() {
    if (place_ == Place::document)
      place_ = Place::name;
    else if (place_ == Place::name && key_ == "__metadata__")
      place_ = Place::metadata_value, keys_.clear();
    else if (place_ == Place::name)
      return start_tensor();
    else
      return unexpected("an object");
    return true;
  }

  bool EndObject(rapidjson::SizeType) {
    if (place_ == Place::name) return true;
    if (place_ == Place::metadata_value)
      place_ = Place::name;
    else
      return end_tensor();
    return true;
  }

  bool StartArray() {
    if (place_ == Place::shape)
      place_ = Place::in_shape;
    else if (place_ == Place::offsets)
      place_ = Place::in_offsets;
    else
      return unexpected("an array");
    return true;
  }

  bool EndArray(rapidjson::SizeType) {
    if (place_ == Place::in_offsets && offsets_.size() != 2) {
      return refuse(of_tensor(), "data_offsets must be two integers");
    }
    place_ = Place::field;
    return true;
  }

  bool Key(const char* text, rapidjson::SizeType n, bool) {
    const std::string key(text, n);
    if (place_ == Place::name) return name_key(key);
    if (place_ != Place::metadata_value) return field_key(key);
    key_ = key;
    return keys_.insert(key).second || refuse("__metadata__ has the key \"", shown(key), "\" twice");
  }

 private:
  enum class Place { document, name, metadata_value, field, dtype, shape, in_shape, offsets, in_offsets };

  template <class... Parts>
  bool refuse(const Parts&... parts) {
    problem_ = concat(parts...);
    return false;
  }
  std::string of_tensor() const { return "tensor \"" + shown(key_) + "\": "; }
  SafetensorsEntry& entry() { return header_.entries.back(); }

  bool unexpected(const char* found) {
    switch (place_) {
      case Place::document:
        return refuse("the header is not a JSON object but ", found);
      case Place::name:
        if (key_ == "__metadata__") return refuse("__metadata__ must be an object of strings, found ", found);
        return refuse(of_tensor(), "must be an object with dtype, shape and data_offsets, found ", found);
      case Place::metadata_value:
        return refuse("__metadata__ key \"", key_, "\" must be a string, found ", found);
      case Place::dtype:
        return refuse(of_tensor(), "dtype must be a string, found ", found);
      default:
        return refuse(of_tensor(), field_, " must be an array of non-negative integers below 2^64, found ", found);
    }
  }

  bool name_key(const std::string& key) {
    key_ = key;
    if (key.size() > kMaxNameBytes) {
      return refuse("a tensor name has ", key.size(), " bytes; the limit is ", kMaxNameBytes);
    }
    for (const char c : key) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return refuse("a tensor name has a control character");
    }
    if (valid_utf8(key) < key.size()) return refuse("a tensor name is not valid Unicode");
    return names_.insert(key).second || refuse("duplicate tensor name \"", shown(key), "\"");
  }

  bool start_tensor() {
    if (header_.entries.size() == kMaxTensors) return refuse("more than ", kMaxTensors, " tensors");
    header_.entries.emplace_back().name = key_;
    offsets_.clear();
    keys_.clear();
    place_ = Place::field;
    return true;
  }

  bool end_tensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!keys_.count(field)) return refuse(of_tensor(), field, " is missing");
    }
    entry().begin = offsets_[0];
    entry().end = offsets_[1];
    place_ = Place::name;
    return true;
  }

  bool field_key(const std::string& key) {
    field_ = key;
    if (key == "dtype")
      place_ = Place::dtype;
    else if (key == "shape")
      place_ = Place::shape;
    else if (key == "data_offsets")
      place_ = Place::offsets;
    else
      return refuse(of_tensor(), "unknown field \"", shown(key), "\"");
    return keys_.insert(key).second || refuse(of_tensor(), key, " is given twice");
  }

  bool add_size(uint64_t n) {
    if (entry().shape.size() == kMaxDims) return refuse(of_tensor(), "more than ", kMaxDims, " dimensions");
    // LibTorch counts with signed numbers; above that even an empty tensor has no shape. The products are checked
    // later.
    if (n > uint64_t{std::numeric_limits<int64_t>::max()}) return refuse(of_tensor(), "its size overflows 64 bits");
    entry().shape.push_back(static_cast<int64_t>(n));
    return true;
  }

  SafetensorsHeader& header_;
  Place place_ = Place::document;
  std::string key_, field_, problem_;
  std::vector<uint64_t> offsets_;
  std::unordered_set<std::string> names_, keys_;
};

void write_string(rapidjson::Writer<rapidjson::StringBuffer>& writer, const std::string& text) {
  writer.String(text.data(), static_cast<rapidjson::SizeType>(text.size()));
}

void write_entry(rapidjson::Writer<rapidjson::StringBuffer>& writer, const SafetensorsEntry& entry) {
  write_string(writer, entry.name);
  writer.StartObject();
  writer.Key("dtype");
  writer.String(entry.dtype->name);
  writer.Key("shape");
  writer.StartArray();
  for (const int64_t size : entry.shape) writer.Int64(size);
  writer.EndArray();
  writer.Key("data_offsets");
  writer.StartArray();
  writer.Uint64(entry.begin);
  writer.Uint64(entry.end);
  writer.EndArray();
  writer.EndObject();
}

}  // namespace

SafetensorsJsonProblem read_safetensors_json(std::string_view text, SafetensorsHeader& header) {
  rapidjson::MemoryStream stream(text.data(), text.size());
  rapidjson::Reader reader;
  SafetensorsJsonReader handler(header);
  const auto result = reader.Parse<rapidjson::kParseValidateEncodingFlag>(stream, handler);
  if (result) return {};
  if (result.Code() == rapidjson::kParseErrorTermination) return {handler.problem(), result.Offset()};
  return {concat("the header is not JSON: ", rapidjson::GetParseError_En(result.Code())), result.Offset()};
}

std::string write_safetensors_json(const std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata) {
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
  writer.StartObject();
  if (!metadata.empty()) {
    writer.Key("__metadata__");
    writer.StartObject();
    for (const auto& [key, value] : metadata) {
      write_string(writer, key);
      write_string(writer, value);
    }
    writer.EndObject();
  }
  for (const SafetensorsEntry& entry : entries) write_entry(writer, entry);
  writer.EndObject();
  return {buffer.GetString(), buffer.GetSize()};
}

}  // namespace drivetrain
