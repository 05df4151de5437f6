#include "launch/elastic.h"

#include <algorithm>

#include "base/printable.h"
#include "cli/commands.h"
#include "cli/parse.h"

namespace drivetrain::program {
namespace {

using cli::Arguments;

constexpr int kRestartsOfDeepSpeed = 100;

// "2:4"
void read_range_of_ranks(const Arguments& arguments, LaunchRequest& request) {
  const std::string text = arguments.text("--elastic");
  const size_t colon = std::min(text.find(':'), text.size());
  const auto least = cli::read_whole(text.substr(0, colon)),
             most = cli::read_whole(text.substr(std::min(colon + 1, text.size())));
  if (!least || !most || *least < 1 || *most > kMostRanks || *least > *most)
    cli::refuse(arguments.command(), "--elastic wants MIN:MAX, numbers of ranks from 1 to " +
                                         std::to_string(kMostRanks) + " such as 2:4, got \"" + shown(text) + "\"");
  if (request.max_restarts == 0) cli::refuse(arguments.command(), "--elastic goes with --max-restarts N, N at least 1");
  request.least_ranks = static_cast<int>(*least), request.most_ranks = static_cast<int>(*most);
  if (!arguments.has("-n") && request.hosts.hosts.empty()) request.ranks = request.most_ranks;
  if (request.ranks < request.least_ranks || request.ranks > request.most_ranks)
    cli::refuse(arguments.command(),
                (request.hosts.hosts.empty() ? "-n " : "the hosts together have ") + std::to_string(request.ranks) +
                    (request.hosts.hosts.empty() ? "" : " ranks, which") + " is not within --elastic " + shown(text));
}

// DeepSpeed's options.
void read_range_of_hosts(const Arguments& arguments, LaunchRequest& request) {
  const auto refuse = [&](const std::string& problem) { cli::refuse(arguments.command(), problem); };
  const int hosts = std::max(1, static_cast<int>(request.hosts.hosts.size()));
  const int least = arguments.has("--min_elastic_nodes") ? static_cast<int>(arguments.whole("--min_elastic_nodes")) : 1;
  const int most =
      arguments.has("--max_elastic_nodes") ? static_cast<int>(arguments.whole("--max_elastic_nodes")) : hosts;
  if (request.max_restarts == 0) refuse("--elastic_training goes with --max-restarts N, N at least 1");
  if (least > hosts)
    refuse("--min_elastic_nodes " + std::to_string(least) + ": the run has " + hosts_text(static_cast<size_t>(hosts)));
  if (most < hosts)
    refuse("--max_elastic_nodes " + std::to_string(most) + ": the run has " + hosts_text(static_cast<size_t>(hosts)) +
           "; --num_nodes " + std::to_string(most) + " begins with fewer");
  request.least_hosts = least;
}

}  // namespace

int restarts_of(const Arguments& arguments) {
  const bool as_deepspeed = arguments.has("--elastic_training") && !arguments.has("--max-restarts");
  return as_deepspeed ? kRestartsOfDeepSpeed : static_cast<int>(arguments.whole("--max-restarts"));
}

void read_elastic(const Arguments& arguments, LaunchRequest& request) {
  request.max_restarts = restarts_of(arguments);
  if (arguments.has("--elastic")) read_range_of_ranks(arguments, request);
  if (arguments.has("--elastic_training")) read_range_of_hosts(arguments, request);
  if (request.max_restarts > 0 && request.only_rank_0)
    cli::refuse(arguments.command(), "--plan starts no training, so that --max-restarts has no meaning");
}

}  // namespace drivetrain::program
