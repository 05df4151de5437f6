#include "join_parts.h"

#include <algorithm>
#include <cstring>

#include <drivetrain/error.h>

namespace drivetrain::megatron {
namespace {

constexpr int64_t kComparedTogether = 1 << 20;  // elements

template <class... Words>
Error wrong(const RankPart& part, const std::string& name, const Words&... words) {
  return fail(ErrorCode::checkpoint, part.file->path(), ": tensor \"", name, "\" ", words...,
              "\n   bring the files of one checkpoint into this folder");
}

bool equal_values(const RankPart& a, const RankPart& b) {
  for (int64_t at = 0; at < a.tensor.numel(); at += kComparedTogether) {
    const int64_t some = std::min(kComparedTogether, a.tensor.numel() - at);
    const at::Tensor x = a.file->read(a.tensor, at, some), y = b.file->read(b.tensor, at, some);
    if (std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) != 0) return false;
  }
  return true;
}

void check_alike(const std::string& name, Cut cut, const std::vector<RankPart>& parts) {
  const RankPart& first = parts.front();
  const std::vector<int64_t>& shape = first.tensor.shape;
  for (const RankPart& part : parts)
    if (part.tensor.shape != shape || part.tensor.dtype != first.tensor.dtype)
      throw wrong(part, name, "has shape ", at::IntArrayRef(part.tensor.shape), " and type ",
                  c10::toString(part.tensor.dtype), "; in ", first.file->path(), " it has ", at::IntArrayRef(shape),
                  " and ", c10::toString(first.tensor.dtype));
  const size_t least = cut == Cut::columns ? 2 : 1;
  if (cut != Cut::none && (shape.size() < least || shape.size() > 2))
    throw wrong(first, name, "has shape ", at::IntArrayRef(shape), ", which tensor ranks cannot have a part of");
  if (cut != Cut::none) return;
  for (const RankPart& part : parts)
    if (&part != &first && !equal_values(first, part))
      throw wrong(part, name, "has other values than in ", first.file->path(), "; every tensor rank has a copy of it");
}

// Where the part of a rank stands in the whole, with its first element there.
struct Piece {
  StateBox box;
  int64_t first = 0;
};
std::vector<Piece> pieces_of(Cut cut, const StateBox& part, int64_t rank, int64_t ranks) {
  const int64_t half = part.rows / 2;
  if (cut == Cut::columns) return {{{0, rank * part.columns, part.rows, part.columns}}};
  if (cut == Cut::rows) return {{{rank * part.rows, 0, part.rows, part.columns}}};
  return {{{rank * half, 0, half, part.columns}},
          {{(ranks + rank) * half, 0, half, part.columns}, half * part.columns}};
}

}  // namespace

void join_parts(TorchCheckpoint& made, const std::string& name, Cut cut, const std::vector<RankPart>& parts) {
  const RankPart& first = parts.front();
  const auto ranks = static_cast<int64_t>(parts.size());
  const std::string full = "model/" + name;
  if (ranks > 1) check_alike(name, cut, parts);
  if (ranks == 1 || cut == Cut::none) return made.add_whole(full, first.file, first.tensor);
  std::vector<int64_t> whole = first.tensor.shape;
  int64_t& size = whole[cut == Cut::columns ? 1 : 0];
  if (__builtin_mul_overflow(size, ranks, &size)) throw wrong(first, name, "has a shape that cannot be");
  made.add(full, whole, first.tensor.dtype);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const RankPart& part = parts[static_cast<size_t>(rank)];
    for (const Piece& piece : pieces_of(cut, whole_of(part.tensor.shape), rank, ranks))
      made.add_box(full, piece.box, part.file, part.tensor, piece.first);
  }
}

}  // namespace drivetrain::megatron
