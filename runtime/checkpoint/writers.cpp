#include "checkpoint/writers.h"

#include <algorithm>
#include <map>

#include <drivetrain/error.h>

#include "rendezvous/gather_values.h"

namespace drivetrain {
namespace {

// What one rank tells about one of its parts.
struct Offer {
  std::string name;
  StateBox box;
  uint64_t bytes = 0;
  int64_t whole = 0;  // elements of the whole tensor

  auto key() const { return std::tuple(name, box.row, box.column, box.rows, box.columns); }
};

Offer offer_of(const HeldPart& part) {
  int64_t whole = 1;
  for (const int64_t size : part.shape) whole *= size;
  return {part.name, part.box, part.bytes(), whole};
}

Value to_value(const std::vector<HeldPart>& parts) {
  Value list = Value::array();
  for (const HeldPart& part : parts) {
    const Offer o = offer_of(part);
    list.items().push_back(Value(Value::Array{o.name, o.box.row, o.box.column, o.box.rows, o.box.columns,
                                              static_cast<int64_t>(o.bytes), o.whole}));
  }
  return list;
}

std::vector<Offer> read_offers(const Value& list) {
  std::vector<Offer> offers;
  for (const Value& entry : list.items()) {
    const Value::Array& o = entry.items();
    const auto number = [&](size_t at) { return o.at(at).as_int(); };
    offers.push_back({o.at(0).as_string(),
                      {number(1), number(2), number(3), number(4)},
                      static_cast<uint64_t>(number(5)),
                      number(6)});
  }
  return offers;
}

void check_whole(const std::vector<std::vector<Offer>>& offers, const std::vector<std::vector<bool>>& writes) {
  std::map<std::string, std::pair<int64_t, int64_t>> found;  // elements written, of
  for (size_t rank = 0; rank < offers.size(); ++rank)
    for (size_t i = 0; i < offers[rank].size(); ++i) {
      const Offer& o = offers[rank][i];
      auto& [written, whole] = found[o.name];
      whole = o.whole;
      if (writes[rank][i]) written += o.box.rows * o.box.columns;
    }
  for (const auto& [name, counts] : found)
    if (counts.first != counts.second)
      throw fail(ErrorCode::plugin, "the state ", name, ": the ranks hold ", counts.first, " of its ", counts.second,
                 " elements between them; its owner visits it with a layout that is wrong or differs between ranks");
}

// A part that one rank alone holds is that rank's. The others follow, the largest first, each to the holder that has
// the least to write so far, the first of several.
std::vector<std::vector<bool>> assign(const std::vector<std::vector<Offer>>& offers) {
  using Key = decltype(std::declval<Offer>().key());
  using Holders = std::vector<std::pair<size_t, size_t>>;  // ranks, and places in their lists
  std::map<Key, Holders> holders;
  std::vector<std::vector<bool>> writes;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    writes.emplace_back(offers[rank].size(), false);
    for (size_t i = 0; i < offers[rank].size(); ++i) holders[offers[rank][i].key()].emplace_back(rank, i);
  }
  const auto bytes = [&](const Holders& of) { return offers[of.front().first][of.front().second].bytes; };
  std::vector<const Holders*> order;
  for (const auto& [key, of] : holders) order.push_back(&of);
  std::stable_sort(order.begin(), order.end(), [&](const Holders* a, const Holders* b) {
    const bool a_alone = a->size() == 1, b_alone = b->size() == 1;
    return a_alone != b_alone ? a_alone : bytes(*a) > bytes(*b);
  });
  std::vector<uint64_t> load(offers.size(), 0);
  for (const Holders* of : order) {
    auto least = of->front();
    for (const auto& holder : *of)
      if (load[holder.first] < load[least.first]) least = holder;
    writes[least.first][least.second] = true;
    load[least.first] += bytes(*of);
  }
  check_whole(offers, writes);
  return writes;
}

}  // namespace

std::vector<std::vector<bool>> choose_writers(const std::vector<std::vector<HeldPart>>& parts) {
  std::vector<std::vector<Offer>> offers;
  for (const auto& of_rank : parts) offers.push_back(read_offers(to_value(of_rank)));
  return assign(offers);
}

std::vector<bool> choose_writers(const std::vector<HeldPart>& parts, Store& store, const RankEnvironment& env,
                                 double timeout_s, const std::string& round) {
  const std::vector<Value> lists = gather_values(store, round + "parts", env, to_value(parts), timeout_s);
  const std::string answer_key = round + "writers";
  std::vector<bool> mine;
  if (env.rank == 0) {
    std::vector<std::vector<Offer>> offers;
    for (const Value& list : lists) offers.push_back(read_offers(list));
    const auto writes = assign(offers);
    Value answer = Value::array();
    for (const auto& of_rank : writes) {
      std::string marks;
      for (const bool one : of_rank) marks += one ? '1' : '0';
      answer.items().push_back(marks);
    }
    store.set(answer_key, answer.to_json());
    return writes.front();
  }
  const Value answer = parse_json(store.get(answer_key, timeout_s), answer_key);
  for (const char mark : answer.items().at(static_cast<size_t>(env.rank)).as_string()) mine.push_back(mark == '1');
  if (mine.size() != parts.size())
    throw fail(ErrorCode::internal, "rank 0 answered for ", mine.size(), " of ", parts.size(), " parts of the state");
  return mine;
}

}  // namespace drivetrain
