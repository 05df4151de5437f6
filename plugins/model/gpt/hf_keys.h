// What the reader of config.json does with each key, as a table (hf_keys.cpp), and the part of the reading that follows
// from the table alone. README.md shows the table. Errors: config, naming the file and the key. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/key_table.h>
#include <drivetrain/value.h>

#include "hf_config.h"

namespace drivetrain::gpt {

// Spellings of one fact in files of all ages have to be equal where several are there; the first is what transformers 5
// writes. `of`: the families. `plain` of one that is honoured: what an absent key means; "": it follows from others;
// null: it has to be there. Of one that is refused: null: hf_config.cpp decides.
struct HfKey : KeyRow {
  // Honoured: where it goes; none: hf_config.cpp reads it.
  std::variant<std::monostate, int64_t Shape::*, double Shape::*, bool Shape::*> member = {};
};
const std::vector<HfKey>& hf_keys();
bool is_of(const KeyRow& row, Family family);

inline constexpr int64_t kDerived = INT64_MIN;

// One config.json. A null counts as absent, as it does for transformers.
class HfReader {
 public:
  HfReader(const Value& config, std::string path, Family family)
      : config_(config), path_(std::move(path)), family_(family) {}

  // Spellings that differ and values that are refused are errors; what has a place in the shape goes there.
  void read(Shape& shape) const;
  // Keys that no row of the family has, and what is said of each.
  std::vector<std::pair<std::string, std::string>> unknown() const;

  const Value* find(const std::string& key) const;  // null: absent, or null
  bool is_null(const char* key) const { return config_.find(key) && config_.find(key)->is_null(); }
  int64_t integer(const char* key, int64_t otherwise) const;
  double number(const char* key, double otherwise) const;
  bool flag(const char* key, bool otherwise) const;
  std::string text(const char* key, const char* otherwise) const;
  void refuse_if(bool bad, const std::string& key, const std::string& why) const;
  template <class... Parts>
  Error wrong(const Parts&... parts) const {
    return fail(ErrorCode::config, "model/gpt: ", path_, ": ", parts...);
  }
  const std::string& path() const { return path_; }

 private:
  const Value* find_spelled(const KeyRow& row) const;
  void put(const HfKey& row, Shape& shape) const;

  const Value& config_;
  const std::string path_;
  const Family family_;
};

// Whether two JSON values are one fact: 10000 and 10000.0, "float32" and "torch.float32".
bool same_fact(const Value& a, const Value& b);

}  // namespace drivetrain::gpt
