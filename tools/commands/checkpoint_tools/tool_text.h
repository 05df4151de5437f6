// Words and numbers as the commands on checkpoints print them. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <drivetrain/value.h>

namespace drivetrain {

std::string utc_text(double seconds);                       // "2026-11-23 01:02:03"; seconds since 1970
std::string utc_json_text(double seconds);                  // "2026-11-23T01:02:03Z"
std::string megabytes(uint64_t bytes);                      // "12.3 MB"
std::string short_number(double x);                         // six digits
std::string shape_text(const std::vector<int64_t>& shape);  // "[4, 8]"
std::string counted(size_t n, const std::string& noun);     // "1 tensor", "2 tensors"
// A number that JSON has none for is the string "nan", "inf" or "-inf".
Value number_value(double x);
Value strings_value(const std::vector<std::string>& strings);
Value count_value(uint64_t n);
// "4 (dp 2, tp 2)" of the facts of a run; "" where they do not say it.
std::string ranks_text(const Value& facts);
// What begins the name of a tensor, up to its first slash: "model" of "model/embedding.weight".
std::string owner_of(const std::string& name);

}  // namespace drivetrain
