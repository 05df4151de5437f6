#include <drivetrain/toolkit/host_memory/address_book.h>

#include <algorithm>

namespace drivetrain::toolkit::host_memory {

void AddressBook::add(int64_t rank, int64_t offset, std::shared_ptr<Mapping> mapping) {
  const std::lock_guard lock(mutex_);
  auto table = std::make_unique<Table>(*tables_.back());
  char* const begin = mapping->base();
  const Entry entry{begin, begin + mapping->bytes(), rank, offset, std::move(mapping)};
  table->by_address.push_back(entry);
  table->by_place.push_back(entry);
  std::sort(table->by_address.begin(), table->by_address.end(),
            [](const Entry& a, const Entry& b) { return a.begin < b.begin; });
  std::sort(table->by_place.begin(), table->by_place.end(),
            [](const Entry& a, const Entry& b) { return a.rank != b.rank ? a.rank < b.rank : a.offset < b.offset; });
  newest_ = table.get();
  tables_.push_back(std::move(table));
}

Place AddressBook::place_of(const void* address) const {
  const auto& entries = newest_.load()->by_address;
  const char* const at = static_cast<const char*>(address);
  const auto after = std::upper_bound(entries.begin(), entries.end(), at,
                                      [](const char* wanted, const Entry& entry) { return wanted < entry.begin; });
  if (after == entries.begin()) return {};
  const Entry& entry = *std::prev(after);
  return at < entry.end ? Place{entry.rank, entry.offset + (at - entry.begin)} : Place{};
}

char* AddressBook::find(const Place& place, int64_t bytes) const {
  const auto& entries = newest_.load()->by_place;
  const auto before = [](const Place& wanted, const Entry& entry) {
    return wanted.rank != entry.rank ? wanted.rank < entry.rank : wanted.offset < entry.offset;
  };
  const auto after = std::upper_bound(entries.begin(), entries.end(), place, before);
  if (after == entries.begin()) return nullptr;
  const Entry& entry = *std::prev(after);
  const int64_t into = place.offset - entry.offset, room = entry.end - entry.begin;
  if (entry.rank != place.rank || into < 0 || bytes < 0 || into > room || bytes > room - into) return nullptr;
  return entry.begin + into;
}

}  // namespace drivetrain::toolkit::host_memory
