// A JSON value with its position in the file. Sections of the configuration are passed to option tables as Values;
// option structs are converted back to Values for resolved.json and `inspect`. Objects keep the order of their keys.
// Value semantics; const calls from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(value)

namespace drivetrain {

// The origin of a value: "configs/a.json:3:7", "--set #2" (line 0), or none (empty file).
struct DRIVETRAIN_API Position {
  std::string file;
  int line = 0;              // from 1; 0: no line
  int column = 0;            // from 1
  std::string text() const;  // "configs/a.json:3:7", "--set #2", ""
};

class DRIVETRAIN_API Value {
 public:
  using Array = std::vector<Value>;
  struct Member;
  using Object = std::vector<Member>;

  Value() = default;  // null
  Value(bool b);
  Value(int v);
  Value(int64_t v);
  Value(double v);
  Value(const char* s);
  Value(std::string s);
  Value(Array a);
  Value(Object o);
  static Value object();
  static Value array();

  bool is_null() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }  // written without fraction or exponent
  bool is_number() const { return is_int() || std::holds_alternative<double>(data_); }
  bool is_string() const { return std::holds_alternative<std::string>(data_); }
  bool is_array() const { return std::holds_alternative<Array>(data_); }
  bool is_object() const { return std::holds_alternative<Object>(data_); }
  const char* type_name() const;  // "null", "boolean", "integer", "number", "string", "array", "object"

  // The accessors below throw Error(config) naming position and both types if the value is of another type.
  bool as_bool() const;
  int64_t as_int() const;  // also accepts whole numbers written as 5e8 or 3.0
  double as_double() const;
  const std::string& as_string() const;
  const Array& items() const;
  Array& items();
  const Object& members() const;
  Object& members();

  const Value* find(const std::string& key) const;  // null if absent or if this is not an object
  Value& set(const std::string& key, Value value);  // replaces or appends; null becomes an object
  bool erase(const std::string& key);

  std::string to_json(int indent = 0) const;  // numbers round-trip exactly; indent 0 is one line
  bool operator==(const Value& other) const;  // positions are not compared

  Position where;      // of the value
  Position key_where;  // of the key, if it is an object's member

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> data_;
};

struct Value::Member {
  std::string key;
  Value value;
  bool operator==(const Member&) const = default;
};

// Behind Member, which clang wants to be complete here.
inline Value::Value(bool b) : data_(b) {}
inline Value::Value(int v) : data_(static_cast<int64_t>(v)) {}
inline Value::Value(int64_t v) : data_(v) {}
inline Value::Value(double v) : data_(v) {}
inline Value::Value(const char* s) : data_(std::string(s)) {}
inline Value::Value(std::string s) : data_(std::move(s)) {}
inline Value::Value(Array a) : data_(std::move(a)) {}
inline Value Value::array() { return Value(Array{}); }

// Parses JSON with comments and trailing commas. Throws Error(config) with file:line:column: syntax, duplicate key,
// number out of range, nesting deeper than 128. Keys beginning with `_` or `$` are kept; option tables skip them.
DRIVETRAIN_API Value parse_json(const std::string& text, const std::string& file);
DRIVETRAIN_API Value read_json_file(const std::string& path);  // Error(config) if missing or unreadable

}  // namespace drivetrain
