#include "checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <set>

#include <drivetrain/toolkit/dtype_name.h>
#include <drivetrain/toolkit/files/durable.h>
#include <drivetrain/toolkit/text.h>

#include "boxes.h"
#include "coverage.h"
#include "layout.h"
#include "signed_json.h"

namespace drivetrain::sharded {
namespace {

// Says what the file is if it is whole but not the one that the manifest lists.
void check_index(const std::string& path, const std::string& text, const RankFiles& wanted) {
  if (digest_of(text) == wanted.index_digest) return;
  const SaveIdentity found = read_index(path, text).identity;  // says so if it is damaged
  if (found == wanted.identity)
    throw damaged(path, "has the digest ", digest_of(text).text(), ", and ", kManifestName, " says ",
                  wanted.index_digest.text(), ": it was edited");
  throw damaged(path, "is of another save than ", kManifestName, ": wanted ", wanted.identity.text(), "; found ",
                found.text());
}

}  // namespace

ShardedCheckpoint::ShardedCheckpoint(FileCalls& calls, const std::string& folder, const std::string& tag, bool check)
    : calls_(calls), folder_(folder), tag_(tag), files_(calls, check) {
  const std::string path = folder_ + "/" + kManifestName;
  const std::string text = read_text(path);
  manifest_ = read_manifest(path, text, tag_);
  manifest_digest_ = digest_of(text);
  for (size_t rank = 0; rank < manifest_.ranks.size(); ++rank) open_rank(rank);
}

void ShardedCheckpoint::open_rank(size_t rank) {
  const RankFiles& wanted = manifest_.ranks[rank];
  const std::string path = folder_ + "/" + index_name(wanted.identity.rank);
  const std::string text = read_text(path);
  check_index(path, text, wanted);
  RankIndex index = read_index(path, text);
  if (!(index.identity == wanted.identity) || index.bytes != wanted.data_bytes)
    throw damaged(path, "does not fit ", kManifestName, ": wanted ", wanted.identity.text(), " with ",
                  wanted.data_bytes, " bytes");
  for (const FileSlice& slice : index.slices) add(rank, slice);
  index.slices.clear(), index.slices.shrink_to_fit();
  files_.add(folder_ + "/" + data_name(wanted.identity.rank), std::move(index));
}

void ShardedCheckpoint::add(size_t file, const FileSlice& slice) {
  const auto [at, fresh] = tensors_.try_emplace(slice.name);
  Tensor& tensor = at->second;
  if (fresh) tensor.shape = slice.shape, tensor.dtype = slice.dtype;
  if (tensor.shape != slice.shape || tensor.dtype != slice.dtype)
    throw damaged(folder_, "the ranks do not agree on tensor \"", slice.name, "\": ", dtype_name(tensor.dtype), " ",
                  at::IntArrayRef(tensor.shape), " and, from rank ", file, ", ", dtype_name(slice.dtype), " ",
                  at::IntArrayRef(slice.shape));
  if (area(slice.box) > 0) tensor.pieces.push_back({file, slice.box, slice.begin});
}

std::vector<StoredTensor> ShardedCheckpoint::tensors() const {
  std::vector<StoredTensor> list;
  for (const auto& [name, tensor] : tensors_) list.push_back({name, tensor.shape, tensor.dtype});
  return list;
}

const ShardedCheckpoint::Tensor& ShardedCheckpoint::checked(const std::string& name, const StateBox& box,
                                                            const at::Tensor& into) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw fail(ErrorCode::checkpoint, folder_, ": has no tensor \"", name, "\"; it holds ", tensors_.size(),
               "\n   was it saved by a run with another model or optimizer?");
  const Tensor& tensor = found->second;
  if (!contains(*whole_box(tensor.shape), box))
    throw fail(ErrorCode::checkpoint, folder_, ": tensor \"", name, "\" of shape ", at::IntArrayRef(tensor.shape),
               " has no ", box_text(box));
  if (!into.defined() || !into.device().is_cpu() || into.sizes() != at::IntArrayRef({box.rows, box.columns}))
    throw fail(ErrorCode::internal, "checkpoint_store/sharded: tensor \"", name, "\" is to be read into a [", box.rows,
               ", ", box.columns, "] on the CPU");
  return tensor;
}

void ShardedCheckpoint::read(const std::string& name, const StateBox& box, const at::Tensor& into) const {
  const at::NoGradGuard no_grad;
  const Tensor& tensor = checked(name, box, into);
  if (area(box) == 0) return;
  std::vector<StateBox> left{box};
  for (const Piece& piece : tensor.pieces) left = without(left, piece.box);
  if (!left.empty())
    throw damaged(folder_, "tensor \"", name, "\": ", box_text(left.front()), " are in no file of ", tag_);
  for (const Piece& piece : tensor.pieces) {
    const StateBox part = intersection(piece.box, box);
    if (area(part) == 0) continue;
    const at::Tensor target =
        into.narrow(0, part.row - box.row, part.rows).narrow(1, part.column - box.column, part.columns);
    try {
      copy(tensor, piece, part, target);
    } catch (const Error& e) {
      const std::string hint =
          e.code() == ErrorCode::checkpoint ? "\n   copy this checkpoint again from a place where it is whole" : "";
      throw fail(e.code(), e.what(), "\n   wanted for tensor \"", name, "\", ", box_text(part), hint);
    }
  }
}

// Copies from chunk to chunk: as many whole rows at once as lie in it, and a row across its end in two parts. A chunk
// whose elements all go to one place, as they are, is read there.
void ShardedCheckpoint::copy(const Tensor& tensor, const Piece& piece, const StateBox& part,
                             const at::Tensor& into) const {
  const auto width = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  const auto place = [&](int64_t row, int64_t column) {  // of an element of `part`, in the file
    const int64_t before =
        (part.row - piece.box.row + row) * piece.box.columns + part.column - piece.box.column + column;
    return piece.begin + static_cast<uint64_t>(before * width);
  };
  const uint64_t until = place(part.rows - 1, part.columns);
  const int64_t stride = piece.box.columns * width;
  const bool as_it_lies = into.scalar_type() == tensor.dtype && into.is_contiguous() &&
                          (part.columns == piece.box.columns || part.rows == 1);
  const uint64_t chunk_bytes = files_.chunk_bytes(piece.file);
  for (int64_t row = 0, column = 0; row < part.rows;) {
    const uint64_t at = place(row, column);
    if (as_it_lies && at % chunk_bytes == 0 && at + chunk_bytes <= until) {
      const int64_t element = row * part.columns + column;
      files_.read_whole(piece.file, at, until, static_cast<char*>(into.mutable_data_ptr()) + element * width);
      const int64_t next = element + static_cast<int64_t>(chunk_bytes) / width;
      row = next / part.columns, column = next % part.columns;
      continue;
    }
    Chunk chunk = files_.read(piece.file, at, until);
    const auto there = static_cast<int64_t>(chunk.end - at);
    int64_t rows = 1, columns = std::min(part.columns - column, there / width);
    if (column == 0 && columns == part.columns)
      rows = std::min(part.rows - row, (there - columns * width) / stride + 1);
    if (columns == 0) throw fail(ErrorCode::internal, files_.path(piece.file), ": an element lies across two chunks");
    const at::Tensor from = at::from_blob(chunk.memory.get() + (at - chunk.begin), {rows, columns},
                                          {piece.box.columns, 1}, at::TensorOptions(tensor.dtype));
    into.narrow(0, row, rows).narrow(1, column, columns).copy_(from);
    files_.done(std::move(chunk));
    column += columns;
    if (column == part.columns) row += rows, column = 0;
  }
}

std::vector<std::string> ShardedCheckpoint::verify() const {
  std::vector<std::string> problems;
  check_descriptions(problems);
  for (size_t file = 0; file < files_.size(); ++file)
    for (const FileProblem& problem : files_.problems(file))
      problems.push_back(problem.text + tensors_in(file, problem.begin, problem.end));
  for (const auto& [name, tensor] : tensors_) {
    std::vector<StateBox> boxes;
    for (const Piece& piece : tensor.pieces) boxes.push_back(piece.box);
    if (const std::string problem = coverage_problem(*whole_box(tensor.shape), boxes); !problem.empty())
      problems.push_back(concat(folder_, ": tensor \"", name, "\": ", problem));
  }
  return problems;
}

// "; in it: tensor "a", tensor "b" and 5 more": whose elements lie in these bytes of the file.
std::string ShardedCheckpoint::tensors_in(size_t file, uint64_t begin, uint64_t end) const {
  constexpr size_t kMost = 3;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) {
    const auto lies_there = [&](const Piece& piece) {
      const uint64_t bytes = static_cast<uint64_t>(area(piece.box)) * c10::elementSize(tensor.dtype);
      return piece.file == file && piece.begin < end && piece.begin + bytes > begin;
    };
    if (std::any_of(tensor.pieces.begin(), tensor.pieces.end(), lies_there)) names.push_back(name);
  }
  if (names.empty()) return "; in it: the file's header";
  const size_t shown = std::min(kMost, names.size());
  std::string text;
  for (size_t i = 0; i < shown; ++i) text += concat(i == 0 ? "; in it: tensor \"" : ", tensor \"", names[i], "\"");
  return shown == names.size() ? text : concat(text, " and ", names.size() - shown, " more");
}

// The manifest and the indexes as they lie there now, and files that belong to nobody.
void ShardedCheckpoint::check_descriptions(std::vector<std::string>& problems) const {
  const auto check = [&](const auto& action) {
    try {
      action();
    } catch (const Error& e) {
      problems.push_back(first_line(e.what()));
    }
  };
  std::set<std::string> known{kManifestName};
  const std::string path = folder_ + "/" + kManifestName;
  check([&] {
    const std::string text = read_text(path);
    read_manifest(path, text, tag_);
    if (digest_of(text) != manifest_digest_) throw damaged(path, "was replaced since it was opened");
  });
  for (const RankFiles& rank : manifest_.ranks) {
    const std::string index = folder_ + "/" + index_name(rank.identity.rank);
    check([&] { check_index(index, read_text(index), rank); });
    known.insert({index_name(rank.identity.rank), data_name(rank.identity.rank)});
  }
  check([&] {
    for (const std::string& name : names_in(folder_))
      if (!known.contains(name)) problems.push_back(folder_ + "/" + name + ": is no file of this checkpoint");
  });
}

}  // namespace drivetrain::sharded
