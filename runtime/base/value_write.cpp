// Values as JSON text. Numbers are the shortest text that reads back to the same bits; a double keeps its point or
// exponent, so that it reads back as a double. JSON has no NaN and no infinity: they are written as null.
#include <charconv>
#include <cmath>

#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>

#include <drivetrain/value.h>

#include "base/printable.h"

namespace drivetrain {
namespace {

template <class Number>
std::string shortest(Number x) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), x).ptr);
}

std::string double_text(double x) {
  if (!std::isfinite(x)) return "null";
  std::string text = shortest(x);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

template <class Writer>
void write_number(Writer& writer, const Value& value) {
  const std::string text = value.is_int() ? shortest(value.as_int()) : double_text(value.as_double());
  writer.RawValue(text.data(), text.size(), rapidjson::kNumberType);
}

template <class Writer>
void write_value(Writer& writer, const Value& value) {
  if (value.is_null()) {
    writer.Null();
  } else if (value.is_bool()) {
    writer.Bool(value.as_bool());
  } else if (value.is_number()) {
    write_number(writer, value);
  } else if (value.is_string()) {
    writer.String(value.as_string().data(), static_cast<rapidjson::SizeType>(value.as_string().size()));
  } else if (value.is_array()) {
    writer.StartArray();
    for (const Value& item : value.items()) write_value(writer, item);
    writer.EndArray();
  } else {
    writer.StartObject();
    for (const Value::Member& m : value.members()) {
      writer.Key(m.key.data(), static_cast<rapidjson::SizeType>(m.key.size()));
      write_value(writer, m.value);
    }
    writer.EndObject();
  }
}

}  // namespace

std::string Value::to_json(int indent) const {
  rapidjson::StringBuffer buffer;
  if (indent == 0) {
    rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
    write_value(writer, *this);
  } else {
    rapidjson::PrettyWriter<rapidjson::StringBuffer> writer(buffer);
    writer.SetIndent(' ', static_cast<unsigned>(indent));
    writer.SetFormatOptions(rapidjson::kFormatSingleLineArray);
    write_value(writer, *this);
  }
  return printable_json({buffer.GetString(), buffer.GetSize()});
}

}  // namespace drivetrain
