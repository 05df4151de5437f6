#include "document_list.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "eod.h"

namespace drivetrain::megatron {
namespace {

constexpr int64_t kListBlock = 1024;
std::atomic<int64_t> lists_made = 0;

}  // namespace

// Where some documents of a part begin in its .bin file, and where the last of them ends.
struct DocumentList::Block {
  int64_t list = -1;  // whose it is
  const Part* part = nullptr;
  int64_t number = -1;
  std::vector<int64_t> bytes;
};

void DocumentList::fill(Block& block, const Part& part, int64_t number) {
  const IndexFile& index = part.member.file->index();
  const int64_t first = part.first + number * kListBlock, end = std::min(first + kListBlock, part.first + part.count);
  const std::vector<int64_t> sequences = index.first_sequences(first, end - first + 1);
  block.bytes.clear();
  for (const int64_t sequence : sequences)
    block.bytes.push_back(std::clamp(sequence, part.member.range.first, part.member.range.end));
  index.replace_by_pointers(block.bytes);
  for (size_t i = 0; i + 1 < block.bytes.size(); ++i)
    if (block.bytes[i] > block.bytes[i + 1])
      throw fail(ErrorCode::io, "dataset/megatron: ", index.file().path(), ": document ",
                 first + static_cast<int64_t>(i), " begins at byte ", block.bytes[i], " of the .bin file, the next at ",
                 block.bytes[i + 1], "\n   the file is damaged: copy or prepare it again");
}

// Each thread keeps the last block: lengths are asked for one after another.
const DocumentList::Block& DocumentList::block_of(const Part& part, int64_t number) const {
  thread_local Block block;
  if (block.list == id_ && block.part == &part && block.number == number) return block;
  block.list = -1;
  fill(block, part, number);
  block.list = id_, block.part = &part, block.number = number;
  return block;
}

DocumentList::Part DocumentList::part_of(const Member& member, int64_t before) {
  const IndexFile& index = member.file->index();
  Part part{member, before, index.document_of(member.range.first), 0, {}};
  part.count = index.document_of(member.range.end - 1) + 1 - part.first;
  Block block;
  const int64_t least = 2 * member.file->token_bytes();  // a token and a label
  for (int64_t i = 0; i < part.count; i += kListBlock) {
    fill(block, part, i / kListBlock);
    for (size_t j = 0; j + 1 < block.bytes.size(); ++j)
      if (block.bytes[j + 1] - block.bytes[j] < least) part.left_out.push_back(i + static_cast<int64_t>(j));
  }
  return part;
}

DocumentList::DocumentList(const std::vector<Member>& members, std::optional<int64_t> eod)
    : eod_(eod), id_(lists_made++) {
  for (const Member& member : members) {
    parts_.push_back(part_of(member, count_));
    count_ += parts_.back().count - static_cast<int64_t>(parts_.back().left_out.size());
  }
}

DocumentList::Bytes DocumentList::find(int64_t document) const {
  const auto behind = std::upper_bound(parts_.begin(), parts_.end(), document,
                                       [](int64_t wanted, const Part& part) { return wanted < part.before; });
  const Part& part = *(behind - 1);
  int64_t at = document - part.before;
  // The number of documents left out before it: the first r with left_out[r] - r > at.
  size_t low = 0, high = part.left_out.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (part.left_out[middle] - static_cast<int64_t>(middle) > at)
      high = middle;
    else
      low = middle + 1;
  }
  at += static_cast<int64_t>(low);
  const Block& block = block_of(part, at / kListBlock);
  const auto place = static_cast<size_t>(at % kListBlock);
  return {&part, block.bytes[place], block.bytes[place + 1]};
}

int64_t DocumentList::length(int64_t document) const {
  const Bytes bytes = find(document);
  return (bytes.end - bytes.first) / bytes.part->member.file->token_bytes() - 1;
}

void DocumentList::read(int64_t document, int64_t first, int64_t count, int64_t* tokens, int64_t* labels) const {
  const Bytes bytes = find(document);
  const TokenFile& file = *bytes.part->member.file;
  thread_local std::vector<int64_t> both;
  both.resize(static_cast<size_t>(count + 1));
  file.read(bytes.first + first * file.token_bytes(), count + 1, both.data());
  std::memcpy(tokens, both.data(), 8 * static_cast<size_t>(count));
  std::memcpy(labels, both.data() + 1, 8 * static_cast<size_t>(count));
  if (eod_) mask_labels(tokens, count, *eod_, labels);
}

}  // namespace drivetrain::megatron
