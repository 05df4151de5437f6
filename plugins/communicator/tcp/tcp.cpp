// communicator/tcp: CPU ranks on one host or several over TCP, whoever started them. Here is how messages are carried;
// calls, sums, progress and time-outs are the toolkit's (messages/message_communicator.h). See carrier.h for
// connections, meeting.h for how ranks find and prove each other, address.h for which address.
#include <drivetrain/toolkit/messages/message_communicator.h>

#include "carrier.h"

namespace drivetrain::tcp {
namespace {

struct TcpOptions : toolkit::MessageOptions {
  std::optional<std::string> interface;
};

class TcpCommunicator final : public toolkit::MessageCommunicator {
 public:
  using Options = TcpOptions;

  static OptionTable options() {
    return toolkit::message_table<Options>().field(
        "interface", &Options::interface,
        "interface (eth0) or network (10.0.0.0/8) between hosts; null: the one by which rank 0 is reached");
  }

  TcpCommunicator(const Options& options, const Services& services)
      : MessageCommunicator(
            {"communicator/tcp", options.timeout_s, options.piece_bytes, options.share}, services,
            std::make_shared<TcpCarrier>(services, options.interface, options.timeout_s, options.share)) {}
};

}  // namespace
}  // namespace drivetrain::tcp

DRIVETRAIN_PLUGIN(drivetrain::Communicator, "tcp", drivetrain::tcp::TcpCommunicator)
