#include "watch/culprit.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

using Call = RankPicture::Call;
using Pictures = std::vector<std::optional<RankPicture>>;

std::string seconds_text(double s) { return formatted(s < 10 ? "%.1f s" : "%.0f s", s); }

// What a call is to all ranks of its group; of messages to the two of them.
struct SharedCall {
  std::string group;
  int64_t number;
  bool operator<(const SharedCall& o) const { return std::tie(group, number) < std::tie(o.group, o.number); }
};

class Search {
 public:
  Search(const Pictures& pictures, const std::vector<std::string>& hosts) : pictures_(pictures), hosts_(hosts) {
    for (const auto& picture : pictures_)
      if (picture) read(*picture);
  }

  FlightVerdict verdict() const {
    if (auto differs = different_calls()) return *differs;
    std::set<int64_t> lost = missing(), behind;
    std::map<int64_t, const Call*> waiting;
    std::map<int64_t, std::set<int64_t>> waits_for;
    for (const auto& picture : pictures_) {
      if (!picture) continue;
      const Call* const call = blocked_in(*picture);
      if (!call) continue;
      waiting[picture->rank] = call;
      waits_for[picture->rank] = blockers(picture->rank, *call);
    }
    for (const auto& [rank, others] : waits_for)
      for (const int64_t other : others)
        if (!waiting.count(other)) behind.insert(other);
    if (!lost.empty()) return of_lost(lost, waiting);
    if (!behind.empty()) return of_behind(behind, waiting);
    if (!waiting.empty()) return of_waiting(waiting, waits_for);
    return of_quiet();
  }

 private:
  void read(const RankPicture& picture) {
    const auto take = [&](const Call& call) {
      if (is_collective(call.call.op)) {
        if (!picture.reached.count(call.group)) return;
        known_[{call.group, call.call.number}][picture.rank] = call.call;
      } else {
        int64_t& reached = messages_[{picture.rank, call.call.peer, call.call.op, call.group}];
        reached = std::max(reached, call.call.number);
      }
    };
    for (const auto& [group, number] : picture.reached) reached_[group][picture.rank] = number;
    for (const Call& call : picture.ended) take(call);
    for (const Call& call : picture.open) take(call);
  }

  // The call that keeps the rank: one that it waits in or is inside of, the newest.
  static const Call* blocked_in(const RankPicture& picture) {
    const Call* found = nullptr;
    for (const Call& call : picture.open)
      if (call.state == FlightState::waiting || call.state == FlightState::called) found = &call;
    return found;
  }

  std::set<int64_t> missing() const {
    std::set<int64_t> ranks;
    for (size_t r = 0; r < pictures_.size(); ++r)
      if (!pictures_[r]) ranks.insert(static_cast<int64_t>(r));
    return ranks;
  }

  // Those that have not yet made the call that `rank` waits in.
  std::set<int64_t> blockers(int64_t rank, const Call& call) const {
    std::set<int64_t> ranks;
    if (!is_collective(call.call.op)) {
      const FlightOp other = call.call.op == FlightOp::send ? FlightOp::recv : FlightOp::send;
      const auto made = messages_.find({call.call.peer, rank, other, call.group});
      if (made == messages_.end() || made->second < call.call.number) ranks.insert(call.call.peer);
      return ranks;
    }
    const auto group = reached_.find(call.group);
    if (group == reached_.end()) return ranks;  // "others", of which there are several
    for (const auto& [member, number] : group->second)
      if (member != rank && number < call.call.number) ranks.insert(member);
    return ranks;
  }

  std::optional<FlightVerdict> different_calls() const {
    for (const auto& [where, calls] : known_) {
      std::map<std::tuple<int, int64_t, int, int64_t>, std::vector<int64_t>> kinds;
      for (const auto& [rank, call] : calls)
        kinds[{static_cast<int>(call.op), call.bytes, call.dtype, call.peer}].push_back(rank);
      if (kinds.size() < 2) continue;
      std::vector<std::vector<int64_t>> sides;
      for (const auto& [kind, ranks] : kinds) sides.push_back(ranks);
      std::stable_sort(sides.begin(), sides.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
      FlightVerdict v;
      v.different_calls = true;
      std::vector<std::string> words;
      for (const auto& ranks : sides)
        words.push_back(concat(ranks_text(ranks), ": ", call_text(where.group, calls.at(ranks.front())),
                               root_text(calls.at(ranks.front()))));
      v.text = concat("ranks make different calls where all must make the same: ", join(words, "; "));
      // Where one side is the smaller one it is the exception.
      for (size_t i = 1; i < sides.size(); ++i)
        if (sides[i].size() < sides[0].size()) v.culprits.insert(v.culprits.end(), sides[i].begin(), sides[i].end());
      std::sort(v.culprits.begin(), v.culprits.end());
      for (const int64_t rank : v.culprits) v.text += concat("; ", place_text(rank));
      return v;
    }
    return std::nullopt;
  }

  static std::string root_text(const FlightCall& call) {
    return call.op == FlightOp::broadcast ? concat(", root rank ", call.peer) : "";
  }

  std::string name(int64_t rank) const {
    const auto& host = hosts_.at(static_cast<size_t>(rank));
    return several_hosts() && !host.empty() ? concat("rank ", rank, " on host ", host) : concat("rank ", rank);
  }
  bool several_hosts() const {
    return std::any_of(hosts_.begin(), hosts_.end(), [&](const auto& h) { return !h.empty() && h != hosts_[0]; });
  }

  // "rank 3 on host b is in dataset/text, hook read, for 41 s (step 17, micro-batch 2)"
  std::string place_text(int64_t rank) const {
    const auto& picture = pictures_.at(static_cast<size_t>(rank));
    if (!picture) return concat(name(rank), " does not answer");
    const PluginStay* longest = nullptr;
    for (const PluginStay& stay : picture->stays)
      if (!longest || (stay.main_thread && !longest->main_thread) ||
          (stay.main_thread == longest->main_thread && stay.seconds > longest->seconds))
        longest = &stay;
    const FlightPlace& at = picture->place;
    std::string text = name(rank);
    if (longest)
      text += concat(" is in ", longest->call, ", for ", seconds_text(longest->seconds));
    else if (at.doing != FlightDoing::outside)
      text += concat(" is in ", name_of(at.doing), ", quiet for ", seconds_text(picture->quiet_s));
    else
      text += concat(" is in no plugin, quiet for ", seconds_text(picture->quiet_s));
    if (at.step <= 0) return text + " (before the first step)";
    text += concat(" (step ", at.step);
    if (at.micro >= 0) text += concat(", micro-batch ", at.micro);
    return text + ")";
  }

  std::string waiting_text(const std::map<int64_t, const Call*>& waiting, const std::set<int64_t>& but) const {
    std::map<std::string, std::vector<int64_t>> by_call;
    for (const auto& [rank, call] : waiting)
      if (!but.count(rank)) by_call[call_text(call->group, call->call)].push_back(rank);
    std::vector<std::string> words;
    for (const auto& [call, ranks] : by_call)
      words.push_back(concat(ranks_text(ranks), ranks.size() == 1 ? " waits in " : " wait in ", call));
    constexpr size_t kMost = 4;  // a line for people
    const size_t more = words.size() > kMost ? words.size() - kMost : 0;
    if (more) words.resize(kMost);
    return join(words, "; ") + (more ? concat("; ", more, " more calls") : "");
  }

  FlightVerdict named(const std::set<int64_t>& ranks, std::string text,
                      const std::map<int64_t, const Call*>& waiting) const {
    const std::string others = waiting_text(waiting, ranks);
    if (!others.empty()) text += "; " + others;
    return {std::move(text), {ranks.begin(), ranks.end()}, false};
  }

  FlightVerdict of_lost(const std::set<int64_t>& lost, const std::map<int64_t, const Call*>& waiting) const {
    std::vector<std::string> words;
    for (const int64_t rank : lost) words.push_back(name(rank));
    return named(lost,
                 concat(join(words), lost.size() == 1 ? " does" : " do",
                        " not answer: stopped, or the host is gone, overloaded or cut off"),
                 waiting);
  }

  FlightVerdict of_behind(const std::set<int64_t>& behind, const std::map<int64_t, const Call*>& waiting) const {
    std::vector<std::string> words;
    for (const int64_t rank : behind) words.push_back(place_text(rank));
    return named(behind, join(words, "; "), waiting);
  }

  // Everybody waits: either the transfer itself does not end, or ranks wait for each other in turn.
  FlightVerdict of_waiting(const std::map<int64_t, const Call*>& waiting,
                           const std::map<int64_t, std::set<int64_t>>& waits_for) const {
    const bool in_turn =
        std::any_of(waits_for.begin(), waits_for.end(), [](const auto& w) { return !w.second.empty(); });
    FlightVerdict v;
    v.all_wait = true;
    v.text = concat(in_turn ? "ranks wait for each other in turn, by calls in different orders: "
                            : "every rank has made its call, and the transfer does not end: ",
                    waiting_text(waiting, {}));
    if (in_turn)
      for (const auto& [rank, others] : waits_for)
        if (!others.empty()) v.culprits.push_back(rank);
    return v;
  }

  FlightVerdict of_quiet() const {
    const RankPicture* quietest = nullptr;
    for (const auto& picture : pictures_)
      if (picture && (!quietest || picture->quiet_s > quietest->quiet_s)) quietest = &*picture;
    if (!quietest) return {"no rank answers", {}, false};
    return {
        concat(place_text(quietest->rank), pictures_.size() > 1 ? "; no rank waits in a call of the communicator" : ""),
        {quietest->rank},
        false};
  }

  const Pictures& pictures_;
  const std::vector<std::string>& hosts_;
  std::map<std::string, std::map<int64_t, int64_t>> reached_;  // group, rank: its last collective
  std::map<SharedCall, std::map<int64_t, FlightCall>> known_;
  std::map<std::tuple<int64_t, int64_t, FlightOp, std::string>, int64_t> messages_;  // rank, peer, direction, group
};

}  // namespace

FlightVerdict find_culprit(const Pictures& pictures, const std::vector<std::string>& hosts) {
  return Search(pictures, hosts).verdict();
}

}  // namespace drivetrain
