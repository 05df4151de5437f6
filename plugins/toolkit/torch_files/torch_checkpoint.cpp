#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

namespace drivetrain {
namespace {

constexpr int64_t kReadTogether = int64_t{1} << 20;  // elements

int64_t area(const StateBox& box) { return box.rows * box.columns; }

StateBox common(const StateBox& a, const StateBox& b) {
  const int64_t row = std::max(a.row, b.row), column = std::max(a.column, b.column);
  const int64_t rows = std::min(a.row + a.rows, b.row + b.rows) - row;
  const int64_t columns = std::min(a.column + a.columns, b.column + b.columns) - column;
  return {row, column, std::max<int64_t>(rows, 0), std::max<int64_t>(columns, 0)};
}

bool inside(const StateBox& outer, const StateBox& box) {
  return box.row >= 0 && box.column >= 0 && box.rows >= 0 && box.columns >= 0 && box.row <= outer.rows &&
         box.rows <= outer.rows - box.row && box.column <= outer.columns && box.columns <= outer.columns - box.column;
}

}  // namespace

StateBox whole_of(const std::vector<int64_t>& shape) {
  StateBox box{0, 0, shape.empty() ? 1 : shape[0], 1};
  for (size_t i = 1; i < shape.size(); ++i) box.columns *= shape[i];
  return box;
}

void TorchCheckpoint::add(const std::string& name, const std::vector<int64_t>& shape, at::ScalarType dtype) {
  int64_t count = 1;  // a size of 0 counts as 1: those beside it are multiplied elsewhere
  for (const int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(count, std::max<int64_t>(size, 1), &count))
      throw fail(ErrorCode::checkpoint, folder_, ": tensor \"", name, "\" has the shape ", at::IntArrayRef(shape),
                 ", which cannot be");
  if (!tensors_.emplace(name, Tensor{shape, dtype, {}}).second)
    throw fail(ErrorCode::checkpoint, folder_, ": tensor \"", name, "\" is there twice");
}

void TorchCheckpoint::add_box(const std::string& name, const StateBox& box, const File& file, const TorchTensor& source,
                              int64_t first) {
  Tensor& tensor = tensors_.at(name);
  if (!inside(whole_of(tensor.shape), box) || first < 0 || area(box) > source.numel() - first)
    throw fail(ErrorCode::checkpoint, file->path(), ": a part of tensor \"", name, "\" of shape ",
               at::IntArrayRef(tensor.shape), ", ", box.rows, " rows from ", box.row, " and ", box.columns,
               " columns from ", box.column, ", does not fit it or a tensor of ", source.numel(), " elements");
  if (area(box) > 0) tensor.pieces.push_back({box, file, source, first});
}

// The rest of a row, whole rows, the beginning of a row.
void TorchCheckpoint::add_range(const std::string& name, int64_t begin, int64_t count, const File& file,
                                const TorchTensor& source, int64_t first) {
  const int64_t width = std::max<int64_t>(whole_of(tensors_.at(name).shape).columns, 1);
  while (count > 0) {
    const int64_t row = begin / width, column = begin % width;
    StateBox box{row, column, 1, std::min(width - column, count)};
    if (column == 0 && count >= width) box.rows = count / width;
    add_box(name, box, file, source, first);
    begin += area(box), first += area(box), count -= area(box);
  }
}

void TorchCheckpoint::add_whole(const std::string& name, const File& file, const TorchTensor& source) {
  add(name, source.shape, source.dtype);
  add_box(name, whole_of(source.shape), file, source);
}

void TorchCheckpoint::add_alias(const std::string& name, const std::string& of) {
  const Tensor copy = tensors_.at(of);
  add(name, copy.shape, copy.dtype);
  tensors_.at(name).pieces = copy.pieces;
}

void TorchCheckpoint::finish() const {
  for (const auto& [name, tensor] : tensors_) {
    std::vector<StateBox> boxes;
    int64_t covered = 0;
    for (const Piece& piece : tensor.pieces) boxes.push_back(piece.box), covered += area(piece.box);
    std::sort(boxes.begin(), boxes.end(), [](const StateBox& a, const StateBox& b) {
      return a.row != b.row ? a.row < b.row : a.column < b.column;
    });
    for (size_t i = 0; i < boxes.size(); ++i)
      for (size_t k = i + 1; k < boxes.size() && boxes[k].row < boxes[i].row + boxes[i].rows; ++k)
        if (area(common(boxes[i], boxes[k])) > 0)
          throw fail(ErrorCode::checkpoint, folder_, ": tensor \"", name, "\" has two values for row ", boxes[k].row,
                     ", column ", boxes[k].column, ": its parts overlap");
    if (const int64_t wanted = area(whole_of(tensor.shape)); covered != wanted)
      throw fail(ErrorCode::checkpoint, folder_, ": tensor \"", name, "\" of shape ", at::IntArrayRef(tensor.shape),
                 " has ", wanted, " elements, the files hold ", covered, " of them: a file of a rank is missing");
  }
}

std::vector<StoredTensor> TorchCheckpoint::tensors() const {
  std::vector<StoredTensor> list;
  for (const auto& [name, tensor] : tensors_) list.push_back({name, tensor.shape, tensor.dtype});
  return list;
}

void TorchCheckpoint::read(const std::string& name, const StateBox& box, const at::Tensor& into) const {
  const at::NoGradGuard no_grad;
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw fail(ErrorCode::checkpoint, folder_, ": has no tensor \"", name, "\"");
  const Tensor& tensor = found->second;
  if (!inside(whole_of(tensor.shape), box) || into.sizes() != at::IntArrayRef({box.rows, box.columns}))
    throw fail(ErrorCode::internal, folder_, ": tensor \"", name, "\" of shape ", at::IntArrayRef(tensor.shape),
               " was asked for a part that it does not have");
  for (const Piece& piece : tensor.pieces) {
    const StateBox part = common(piece.box, box);
    if (area(part) == 0) continue;
    copy(piece, part, into.narrow(0, part.row - box.row, part.rows).narrow(1, part.column - box.column, part.columns));
  }
}

// Some rows of the piece at a time, of its whole width; of one row only what is wanted.
void TorchCheckpoint::copy(const Piece& piece, const StateBox& part, const at::Tensor& into) const {
  const int64_t width = piece.box.columns, column = part.column - piece.box.column;
  const int64_t some = part.rows == 1 ? 1 : std::max<int64_t>(1, kReadTogether / width);
  for (int64_t row = 0; row < part.rows; row += some) {
    const int64_t rows = std::min(some, part.rows - row);
    const int64_t first = piece.first + (part.row - piece.box.row + row) * width;
    if (rows == 1) {
      into.narrow(0, row, 1).copy_(piece.file->read(piece.source, first + column, part.columns).view({1, -1}));
    } else {
      const at::Tensor values = piece.file->read(piece.source, first, rows * width).view({rows, width});
      into.narrow(0, row, rows).copy_(values.narrow(1, column, part.columns));
    }
  }
}

std::vector<std::string> TorchCheckpoint::verify() const {
  std::set<File> files;
  for (const auto& [name, tensor] : tensors_)
    for (const Piece& piece : tensor.pieces) files.insert(piece.file);
  std::vector<std::string> problems;
  for (const File& file : files)
    for (std::string& problem : file->verify()) problems.push_back(std::move(problem));
  return problems;
}

}  // namespace drivetrain
