// One config.json, read by the rows of a family, and these rows as the README shows them. Errors: config, naming the
// file and the key. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/key_table.h>
#include <drivetrain/value.h>

#include "family.h"

namespace drivetrain::gpt {

// A null counts as absent, as it does for transformers, but for sizes that the code of a model then fills in.
class HfReader {
 public:
  HfReader(const Value& config, std::string path, const Family& family)
      : config_(config), path_(std::move(path)), family_(family) {}

  // The options that the keys set. Spellings that differ and values that are refused are errors.
  Value options() const;
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
  const Family& family() const { return family_; }

 private:
  std::string find_spelled(const FamilyKey& key) const;  // the spelling that is there; "": none
  void put(const FamilyKey& key, Value& options) const;
  void refuse(const FamilyKey& key) const;

  const Value& config_;
  const std::string path_;
  const Family& family_;
};

// Whether two JSON values are one fact: 10000 and 10000.0, "float32" and "torch.float32".
bool same_fact(const Value& a, const Value& b);

// Rows of all families for the README, those that are alike as one; the strings live as long as the program.
const std::vector<KeyRow>& key_rows();

}  // namespace drivetrain::gpt
