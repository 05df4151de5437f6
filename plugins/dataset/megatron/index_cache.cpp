#include "index_cache.h"

#include <drivetrain/random.h>
#include <drivetrain/value.h>

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace drivetrain::megatron {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDescription = "-description.txt";

Value bounds_value(const Split& split) {
  Value::Array list;
  for (const auto& bound : split.bounds())
    list.push_back(bound ? Value(Value::Array{bound->first, bound->second}) : Value());
  return Value(std::move(list));
}

// What Megatron-Core writes of an index, but the tokenizer, which changes nothing of it.
Value description(const IndexRequest& request, const Split& split) {
  return Value::Object{{"class", "GPTDataset"},
                       {"dataset_path", request.prefix},
                       {"num_samples", request.asked ? Value(*request.asked) : Value()},
                       {"index_split", kPartNames[request.part]},
                       {"random_seed", int64_t{request.seed}},
                       {"sequence_length", request.seq_length},
                       {"split", request.split},
                       {"split_matrix", bounds_value(split)}};
}

// 0 and 0.0 are the same bound, and "969, 30, 1" the same split as "969,30,1": its bounds count.
bool same(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (!a.is_array() || !b.is_array()) return a == b;
  bool equal = a.items().size() == b.items().size();
  for (size_t i = 0; equal && i < a.items().size(); ++i) equal = same(a.items()[i], b.items()[i]);
  return equal;
}

bool describes(const std::string& path, const Value& wanted) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    const Value found = parse_json(text, path);
    for (const auto& member : wanted.members()) {
      const Value* const other = found.find(member.key);
      if (member.key != "split" && (!other || !same(*other, member.value))) return false;
    }
    return true;
  } catch (const Error&) {  // another program's text: no description of an index
    return false;
  }
}

}  // namespace

std::optional<GptIndex> find_index(const std::string& folder, const IndexRequest& request, const Split& split,
                                   const Range& range, const GptShape& shape) {
  const Value wanted = description(request, split);
  const std::string end = concat("-GPTDataset-", kPartNames[request.part], kDescription);
  std::error_code unknown;
  for (fs::directory_iterator at(folder, unknown), last; !unknown && at != last; at.increment(unknown)) {
    const std::string path = at->path().string();
    if (!path.ends_with(end) || !describes(path, wanted)) continue;
    auto found = GptIndex::load(path.substr(0, path.size() - std::string(kDescription).size()), range, shape);
    if (found) return found;
  }
  return std::nullopt;
}

void keep_index(const std::string& folder, const IndexRequest& request, const Split& split, const GptIndex& index) {
  const std::string text = description(request, split).to_json(4);
  char name[20];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(hash_name(text)));
  const std::string base = concat(folder, "/", name, "-GPTDataset-", kPartNames[request.part]);
  const std::string part = concat(base, kDescription, ".", ::getpid());
  std::error_code error;
  fs::create_directories(folder, error);
  index.write(base);
  std::ofstream(part) << text << '\n';
  fs::rename(part, base + kDescription, error);
  if (error)
    throw fail(ErrorCode::io, "dataset/megatron: ", base, kDescription, " cannot be written: ", error.message());
}

}  // namespace drivetrain::megatron
