#include "document_list.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "eod.h"

namespace drivetrain::megatron {
namespace {

// Reading a block takes as long as reading eight documents alone.
constexpr int64_t kListBlock = 1024, kNear = 128;
constexpr int64_t kScanned = 1024 * kListBlock;  // documents that one thread looks through at a time
std::atomic<int64_t> lists_made = 0;

}  // namespace

// Where some documents of a part begin in its .bin file, and where the last of them ends.
struct DocumentList::Block {
  int64_t list = -1;  // whose it is
  const Part* part = nullptr;
  int64_t first = 0;  // of the part's documents
  std::vector<int64_t> bytes;

  bool has(int64_t of, const Part& in, int64_t at) const {
    return list == of && part == &in && at >= first && at - first + 1 < static_cast<int64_t>(bytes.size());
  }
};

void DocumentList::fill(Block& block, const Part& part, int64_t begin, int64_t count) {
  const IndexFile& index = part.member.file->index();
  const int64_t first = part.first + begin, end = std::min(first + count, part.first + part.count);
  const std::vector<int64_t> sequences = index.first_sequences(first, end - first + 1);
  block.first = begin;
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

// Each thread keeps the last block: lengths are asked for in ascending order. What is far from it is read alone.
const DocumentList::Block& DocumentList::block_with(const Part& part, int64_t at) const {
  thread_local Block block, alone;
  thread_local int64_t before = INT64_MIN / 2;
  const bool near = std::abs(at - std::exchange(before, at)) <= kNear;
  if (block.has(id_, part, at)) return block;
  Block& found = near ? block : alone;
  found.list = -1;
  fill(found, part, near ? at / kListBlock * kListBlock : at, near ? kListBlock : 1);
  found.list = id_, found.part = &part;
  return found;
}

DocumentList::Part DocumentList::part_of(const Member& member, int64_t before) {
  const IndexFile& index = member.file->index();
  Part part{member, before, index.document_of(member.range.first), 0, {}};
  part.count = index.document_of(member.range.end - 1) + 1 - part.first;
  const int64_t least = 2 * member.file->token_bytes();  // a token and a label
  std::vector<std::vector<int64_t>> left_out(static_cast<size_t>((part.count + kScanned - 1) / kScanned));
  at::parallel_for(0, static_cast<int64_t>(left_out.size()), 1, [&](int64_t begin, int64_t end) {
    Block block;
    for (int64_t i = begin * kScanned; i < std::min(end * kScanned, part.count); i += kListBlock) {
      fill(block, part, i, kListBlock);
      for (size_t j = 0; j + 1 < block.bytes.size(); ++j)
        if (block.bytes[j + 1] - block.bytes[j] < least)
          left_out[static_cast<size_t>(i / kScanned)].push_back(i + static_cast<int64_t>(j));
    }
  });
  for (const std::vector<int64_t>& some : left_out) part.left_out.insert(part.left_out.end(), some.begin(), some.end());
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
  const Block& block = block_with(part, at);
  const auto place = static_cast<size_t>(at - block.first);
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
