#include "formats/frozen_base.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/digest.h"
#include "state/hf_folder.h"

namespace drivetrain {
namespace {

constexpr int64_t kTogether = int64_t{16} << 20;  // bytes that are hashed in one piece
// The number of bytes counts, too.
uint64_t hashed(uint64_t digest, const void* data, size_t bytes) {
  return (digest_of(data, bytes, digest) ^ bytes) * 0x100000001b3u;
}

struct Piece {
  const std::string* name;
  int64_t first, rows;
};

std::vector<Piece> pieces_of(const WeightSource& weights, const std::vector<std::string>& names) {
  std::vector<Piece> pieces;
  for (const std::string& name : names) {
    const std::vector<int64_t> shape = weights.shape(name);
    auto row_bytes = static_cast<int64_t>(c10::elementSize(weights.dtype(name)));
    for (size_t i = 1; i < shape.size(); ++i) row_bytes *= shape[i];
    const int64_t rows = shape.empty() ? 1 : shape[0],
                  some = std::max<int64_t>(1, kTogether / std::max<int64_t>(1, row_bytes));
    for (int64_t row = 0; row < rows; row += some) pieces.push_back({&name, row, std::min(some, rows - row)});
  }
  return pieces;
}

std::string fact_text(const Value& fact, const char* key) {
  const Value* const value = fact.find(key);
  if (value && value->is_string()) return value->as_string();
  throw fail(ErrorCode::checkpoint, "the checkpoint's fact ", kFrozenBase, " has no ", key,
             ": it is damaged or was edited");
}

}  // namespace

Value value_of(const FrozenBase& base) {
  Value value = Value::object();
  value.set("folder", base.folder), value.set("digest", base.digest);
  value.set("params", Value(Value::Array(base.params.begin(), base.params.end())));
  return value;
}

FrozenBase frozen_base_of(const Checkpoint& checkpoint) {
  FrozenBase base;
  const Value* const fact = checkpoint.facts().find(kFrozenBase);
  if (!fact) return base;
  base.folder = fact_text(*fact, "folder"), base.digest = fact_text(*fact, "digest");
  if (const Value* const names = fact->find("params"); names && names->is_array())
    for (const Value& name : names->items())
      if (name.is_string()) base.params.insert(name.as_string());
  return base;
}

std::string digest_of_weights(const WeightSource& weights) {
  const std::vector<std::string> names = weights.names();
  const std::vector<Piece> pieces = pieces_of(weights, names);
  std::vector<uint64_t> digests(pieces.size());
  at::parallel_for(0, static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;  // of this thread
    for (int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      const at::Tensor rows = weights.rows(*piece.name, piece.first, piece.rows);
      digests[static_cast<size_t>(i)] = hashed(kDigestStart, rows.const_data_ptr(), rows.nbytes());
    }
  });
  uint64_t all = hashed(kDigestStart, digests.data(), digests.size() * sizeof(uint64_t));
  for (const std::string& name : names) {
    const std::string form = concat(name, " ", weights.dtype(name), " ", at::IntArrayRef(weights.shape(name)));
    all = hashed(all, form.data(), form.size());
  }
  return formatted("%016llx", static_cast<unsigned long long>(all));
}

void check_frozen_base(const FrozenBase& stored, const std::string& folder, const std::string& checkpoint,
                       const std::string& or_else) {
  const std::string refers = concat("the checkpoint ", checkpoint, " refers to the frozen weights of ", stored.folder);
  const std::string remedy = "\n   put the weights of that run back" + or_else;
  if (folder.empty() || !HfFolder::has_weights(folder))
    throw fail(ErrorCode::checkpoint, refers, ", and ",
               folder.empty() ? "the run reads its weights from no folder" : folder + " holds no weights", remedy);
  const std::string digest = digest_of_weights(HfFolder(folder));
  if (stored.digest == digest) return;
  throw fail(ErrorCode::checkpoint, refers, " (digest ", stored.digest, "), and ",
             folder == stored.folder ? "by now that folder" : folder, " holds others (digest ", digest, ")", remedy);
}

}  // namespace drivetrain
