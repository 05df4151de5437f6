#include <drivetrain/communicator.h>

namespace drivetrain {
namespace {

class CompletedWork final : public Work {
 public:
  void wait() override {}
};

}  // namespace

Work::~Work() = default;

WorkPtr completed_work() {
  static const WorkPtr work = std::make_shared<CompletedWork>();
  return work;
}

Group::~Group() = default;
at::Tensor Group::allocate_once(int64_t, at::ScalarType) { return {}; }

Communicator::~Communicator() = default;

}  // namespace drivetrain
