// communicator/local: threads or processes of one host over shared memory. See group.h for how calls work, host.h for
// how ranks find and watch each other, kernels/collective/tree_sum.h for the order of additions.
#include <algorithm>

#include "group.h"

namespace drivetrain::local {
namespace {

class LocalCommunicator final : public Communicator {
 public:
  using Options = LocalOptions;

  static OptionTable options() {
    return table<Options>()
        .field("timeout_s", &Options::timeout_s, "seconds to wait for another rank before giving up")
        .range(0.001, 1e6)
        .field("spin", &Options::spin,
               "pauses before a waiting rank sleeps; null: 2000 if every rank can have a core of its own, else 0")
        .range(0, 1e9)
        .field("share", &Options::share, "values that ranks only read are kept once per host");
  }

  LocalCommunicator(const Options& options, const Services& services)
      : host_(std::make_shared<Host>(services, options)), world_size_(services.world_size) {}

  ~LocalCommunicator() override { host_->close(); }

  GroupPtr make_group(const std::vector<int64_t>& ranks, const std::string& label) override {
    const bool ascending = std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
    const bool member = std::find(ranks.begin(), ranks.end(), host_->rank()) != ranks.end();
    if (!ascending || !member || ranks.front() < 0 || ranks.back() >= world_size_)
      throw fail(ErrorCode::internal, "communicator/local: group \"", label, "\" on rank ", host_->rank(),
                 ": wanted ascending ranks below ", world_size_, " that contain this one");
    return std::make_shared<LocalGroup>(host_, ranks, label);
  }

  bool has_one_memory() const override { return host_->share(); }

  void abort(const std::string& reason) noexcept override {
    try {
      host_->abort(concat("rank ", host_->rank(), " aborted: ", reason));
    } catch (...) {
      host_->abort("a rank aborted");  // no memory for the text
    }
  }

 private:
  std::shared_ptr<Host> host_;
  const int64_t world_size_;
};

}  // namespace
}  // namespace drivetrain::local

DRIVETRAIN_PLUGIN(drivetrain::Communicator, "local", drivetrain::local::LocalCommunicator)
