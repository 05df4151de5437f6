#include <drivetrain/testkit/kit/left_out.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace drivetrain::test {
namespace left_out_list {

std::mutex mutex;
std::vector<LeftOut> list;

}  // namespace left_out_list

void left_out(const std::string& what, const std::string& why) {
  const std::lock_guard lock(left_out_list::mutex);
  LeftOut one{what, why};
  auto& list = left_out_list::list;
  if (std::find(list.begin(), list.end(), one) == list.end()) list.push_back(std::move(one));
}

std::vector<LeftOut> take_left_out() {
  const std::lock_guard lock(left_out_list::mutex);
  return std::exchange(left_out_list::list, {});
}

}  // namespace drivetrain::test
