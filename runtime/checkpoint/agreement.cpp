#include "checkpoint/agreement.h"

#include <ATen/ops/arange.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include <drivetrain/toolkit/text.h>

#include "formats/state_names.h"

namespace drivetrain {
namespace {

constexpr int64_t kAtOnce = int64_t{1} << 22;  // elements

// Sums of words, each times the odd number of its place: as fast as memory is read, and two words that change places
// change the sum. A difference that it does not see is one of 2^64, and not what a mistake makes.
uint64_t digest_on_host(const at::Tensor& view) {
  const auto item = static_cast<int64_t>(view.element_size());
  const auto* row = static_cast<const char*>(view.const_data_ptr());
  const int64_t bytes = view.size(1) * item, distance = view.stride(0) * item;
  uint64_t sum = 0, place = 1;
  for (int64_t r = 0; r < view.size(0); ++r, row += distance) {
    int64_t at = 0;
    for (uint64_t word = 0; at + 8 <= bytes; at += 8, place += 2) std::memcpy(&word, row + at, 8), sum += word * place;
    if (at == bytes) continue;
    uint64_t word = 0;
    std::memcpy(&word, row + at, static_cast<size_t>(bytes - at));
    sum += word * place, place += 2;
  }
  return sum;
}

at::ScalarType bits_of(size_t item) {
  return item == 1 ? at::kByte : item == 2 ? at::kShort : item == 4 ? at::kInt : at::kLong;
}

uint64_t digest_by_operators(const at::Tensor& view) {
  const int64_t rows = std::max<int64_t>(1, kAtOnce / std::max<int64_t>(1, view.size(1)));
  uint64_t sum = 0;
  for (int64_t row = 0; row < view.size(0); row += rows) {
    const at::Tensor some = view.narrow(0, row, std::min(rows, view.size(0) - row)).contiguous();
    const at::Tensor words = some.view(bits_of(some.element_size())).view({-1}).to(at::kLong);
    const at::Tensor places = at::arange(1, 2 * words.numel(), 2, words.options());
    sum = sum * 0x100000001b3 + static_cast<uint64_t>(words.mul(places).sum().item<int64_t>());
  }
  return sum;
}

uint64_t digest_of(const at::Tensor& view) {
  const bool rows_are_contiguous = view.size(1) <= 1 || view.stride(1) == 1;
  return view.is_cpu() && rows_are_contiguous ? digest_on_host(view) : digest_by_operators(view);
}

// The name of the first counter that differs; empty if none does.
std::string difference(const Value& found, const Value& wanted) {
  for (const Value::Member& counter : wanted.members()) {
    const Value* other = found.find(counter.key);
    if (!other || !(*other == counter.value)) return counter.key;
  }
  for (const Value::Member& counter : found.members())
    if (!wanted.find(counter.key)) return counter.key;
  return {};
}

std::string ranks_text(const std::vector<size_t>& ranks) {
  constexpr size_t kMost = 8;
  const std::vector<size_t> some(ranks.begin(), ranks.begin() + static_cast<int64_t>(std::min(kMost, ranks.size())));
  return concat(ranks.size() == 1 ? "rank " : "ranks ", join(some),
                ranks.size() > kMost ? concat(" and ", ranks.size() - kMost, " more") : "");
}

}  // namespace

Value digests_of(const std::vector<HeldPart>& parts) {
  Value::Array list;
  for (const HeldPart& part : parts) {
    if (!part.name.starts_with(kModelNames)) continue;
    list.emplace_back(part.key().substr(kModelNames.size()));
    list.emplace_back(static_cast<int64_t>(digest_of(part.view)));
  }
  return Value(std::move(list));
}

Value held_alike(Value counters, Value digests) {
  return Value::Object{{"counters", std::move(counters)}, {"digests", std::move(digests)}};
}

std::string differing_numbers(const std::vector<Value>& held) {
  for (size_t rank = 1; rank < held.size(); ++rank)
    if (const std::string name = difference(*held[rank].find("counters"), *held[0].find("counters")); !name.empty())
      return concat("rank ", rank, " has another ", name,
                    " than rank 0; state that is a number must be the same on every rank");
  return {};
}

std::string differing_copies(const std::vector<Value>& held) {
  std::map<std::string, std::map<int64_t, std::vector<size_t>>> ranks;  // by part and digest
  for (size_t rank = 0; rank < held.size(); ++rank) {
    const Value::Array& list = held[rank].find("digests")->items();
    for (size_t i = 0; i + 1 < list.size(); i += 2) ranks[list[i].as_string()][list[i + 1].as_int()].push_back(rank);
  }
  std::set<std::string> names;  // of parameters
  const std::map<int64_t, std::vector<size_t>>* first = nullptr;
  std::string first_name;
  for (const auto& [part, values] : ranks) {
    if (values.size() < 2) continue;
    const std::string name = part.substr(0, part.rfind('@'));
    if (!first) first = &values, first_name = name;
    names.insert(name);
  }
  if (!first) return "";
  std::vector<std::vector<size_t>> groups;
  for (const auto& [digest, of] : *first) groups.push_back(of);
  std::sort(groups.begin(), groups.end());
  std::string text = concat("ranks hold copies of the parameter ", first_name,
                            ", which have become different: ", ranks_text(groups[0]), " and ", ranks_text(groups[1]),
                            " do not have the same values");
  if (names.size() > 1) text += concat(", nor of ", names.size() - 1, " other parameter", names.size() == 2 ? "" : "s");
  return text +
         "\n   a plugin changes values on some ranks alone, or the memory of one is faulty: leave out plugins one by "
         "one to find which,\n   and go on from a checkpoint from before it: --resume TAG";
}

}  // namespace drivetrain
