// communicator/tcp: CPU ranks on one host or several over TCP, whoever started them. Here is how messages are carried;
// calls, sums, progress and time-outs are the toolkit's (messages/message_communicator.h). See carrier.h for
// connections, meeting.h for how ranks find and prove each other, address.h for which address.
#include <drivetrain/toolkit/messages/message_communicator.h>

#include "carrier.h"

namespace drivetrain::tcp {
namespace {

struct TcpOptions {
  double timeout_s = 300;
  int64_t piece_bytes = 1 << 20;
  std::optional<std::string> interface;
  bool share = true;
};

class TcpCommunicator final : public toolkit::MessageCommunicator {
 public:
  using Options = TcpOptions;

  static OptionTable options() {
    return table<Options>()
        .field("timeout_s", &Options::timeout_s, "seconds to wait for another rank before giving up")
        .range(0.001, 1e6)
        .field("piece_bytes", &Options::piece_bytes,
               "what a step of a sum receives from each other rank; less where many ranks would need more than 64 MB")
        .range(64, 1 << 30)
        .field("interface", &Options::interface,
               "interface (eth0) or network (10.0.0.0/8) between hosts; null: the one by which rank 0 is reached")
        .field("share", &Options::share,
               "ranks of one host use shared memory, and add before they send to other hosts; false: as if each rank "
               "had a host of its own");
  }

  TcpCommunicator(const Options& options, const Services& services)
      : MessageCommunicator(
            {"communicator/tcp", options.timeout_s, options.piece_bytes, options.share}, services,
            std::make_shared<TcpCarrier>(services, options.interface, options.timeout_s, options.share)) {}
};

}  // namespace
}  // namespace drivetrain::tcp

DRIVETRAIN_PLUGIN(drivetrain::Communicator, "tcp", drivetrain::tcp::TcpCommunicator)
