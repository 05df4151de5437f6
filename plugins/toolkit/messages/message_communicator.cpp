#include <drivetrain/toolkit/messages/message_communicator.h>

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/toolkit/host/processors.h>

#include "group.h"

namespace drivetrain::toolkit {
namespace messages {

// Two pieces of every other rank are under way at once.
constexpr int64_t kMostScratchBytes = 64 << 20;

int64_t piece_bytes(int64_t wanted, int64_t ranks) {
  const int64_t fits = kMostScratchBytes / (2 * ranks) / 64 * 64;
  return std::min(wanted, std::max<int64_t>(64, fits));
}

}  // namespace messages

Transfer::~Transfer() = default;
Carrier::~Carrier() = default;

void Carrier::pause(int64_t times) {
  std::this_thread::sleep_for(std::chrono::microseconds(std::min<int64_t>(500, 20 + times)));
}

struct MessageCommunicator::Inside {
  const MessageSettings settings;
  const int64_t world_size;
  const std::shared_ptr<Carrier> carrier;
  const messages::BoardPtr board;
  const std::shared_ptr<messages::Engine> engine;
  const std::shared_ptr<messages::Scratch> scratch = std::make_shared<messages::Scratch>();
  bool is_closed = false;
};

MessageCommunicator::MessageCommunicator(const MessageSettings& settings, const Services& services,
                                         std::shared_ptr<Carrier> carrier)
    : inside_([&] {
        const auto board = std::make_shared<messages::Board>(settings, services, carrier);
        const bool cores_to_spare = services.local_size <= processor_share().usable();
        const auto engine = std::make_shared<messages::Engine>(board, carrier, cores_to_spare);
        return std::unique_ptr<Inside>(new Inside{settings, services.world_size, carrier, board, engine});
      }()) {}

MessageCommunicator::~MessageCommunicator() {
  if (!inside_->is_closed) inside_->board->close();
}

bool MessageCommunicator::close_with_all(double within_s, const std::function<void()>& meanwhile) noexcept {
  inside_->is_closed = true;
  inside_->board->close();
  return inside_->board->all_close_within(within_s, meanwhile);
}

void MessageCommunicator::plan(PlanContext& ctx) {
  if (ctx.run().device != "cpu")
    ctx.refuse(
        concat("moves tensors of the CPU only, and \"device\" is \"", ctx.run().device, "\"; use communicator/nccl"));
}

GroupPtr MessageCommunicator::make_group(const std::vector<int64_t>& ranks, const std::string& label) {
  const auto& [settings, world_size, carrier, board, engine, scratch, is_closed] = *inside_;
  const int64_t rank = board->rank();
  const bool ascending = std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  const auto own = std::find(ranks.begin(), ranks.end(), rank);
  if (!ascending || own == ranks.end() || ranks.front() < 0 || ranks.back() >= world_size)
    throw fail(ErrorCode::internal, settings.plugin, ": group \"", label, "\" on rank ", rank,
               ": wanted ascending ranks below ", world_size, " that contain this one");
  carrier->start();
  const std::string where = concat("make_group of group \"", label, "\"");
  const int64_t id = board->meet(ranks, label, [&e = engine] { return e->advance(); });
  int64_t channel = 0;
  std::vector<int> hosts;
  try {
    hosts = board->hosts(ranks);
    channel = carrier->open({ranks, label, own - ranks.begin(), id, board->key_of(id), hosts},
                            [&b = board, &e = engine, &where] {
                              e->advance();
                              b->look();
                              b->throw_if_aborted(where);
                            });
  } catch (const Error& e) {
    board->raise(e.what());
    if (e.code() != ErrorCode::communication) throw;
    board->throw_if_aborted(where);
  } catch (const std::exception& e) {
    board->raise(e.what());
    throw;
  }
  const messages::Wire wire{carrier.get(),
                            channel,
                            static_cast<int>(own - ranks.begin()),
                            static_cast<int>(ranks.size()),
                            messages::piece_bytes(settings.piece_bytes, static_cast<int64_t>(ranks.size())),
                            messages::Hosts(hosts),
                            scratch};
  return std::make_shared<messages::MessageGroup>(
      std::make_shared<messages::Lane>(engine, settings.plugin, wire, ranks, label));
}

void MessageCommunicator::abort(const std::string& reason) noexcept {
  try {
    inside_->board->raise(concat("rank ", inside_->board->rank(), " aborted: ", reason));
  } catch (...) {
    inside_->board->raise("a rank aborted");  // no memory for the text
  }
}

}  // namespace drivetrain::toolkit
