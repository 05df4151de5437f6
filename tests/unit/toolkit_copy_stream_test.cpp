// Copies on a stream of their own, on a device that writes down what its streams are asked for.
#include <drivetrain/toolkit/copy_stream.h>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace drivetrain {
namespace {

using Events = std::vector<std::string>;

Events& said() {
  static Events list;
  return list;
}
int current = 0;  // stream of the thread
int events = 0;   // made so far

// Stands for LibTorch's library of a device that no test opens. An event is its number.
struct SpyGuard : c10::impl::DeviceGuardImplInterface {
  static c10::Stream stream(int64_t id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, 0), id);
  }
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override { return device; }
  c10::Device getDevice() const override { return c10::Device(type(), 0); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return stream(current); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(7); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const c10::Stream before = stream(current);
    current = static_cast<int>(next.id());
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream& on, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = reinterpret_cast<void*>(static_cast<intptr_t>(++events));
    said().push_back("event " + number(*event) + " behind stream " + std::to_string(on.id()));
  }
  void block(void* event, const c10::Stream& on) const override {
    said().push_back("stream " + std::to_string(on.id()) + " waits for event " + number(event));
  }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  static std::string number(void* event) { return std::to_string(reinterpret_cast<intptr_t>(event)); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, SpyGuard)

struct Copies : testing::Test {
  void SetUp() override { said().clear(), current = events = 0; }
  const at::Device device{c10::DeviceType::PrivateUse1, 0};
  CopyStream copies;
};

TEST_F(Copies, run_behind_the_current_stream_and_are_joined_by_it) {
  const CopyStream::Moment end =
      copies.run(device, [] { said().push_back("copy on stream " + std::to_string(current)); });
  EXPECT_EQ(current, 0);
  said().push_back("compute");
  end.join();
  EXPECT_EQ(said(), (Events{"event 1 behind stream 0", "stream 7 waits for event 1", "copy on stream 7",
                            "event 2 behind stream 7", "compute", "stream 0 waits for event 2"}));
}

TEST_F(Copies, each_is_joined_by_itself) {
  const CopyStream::Moment first = copies.run(device, [] {}), second = copies.run(device, [] {});
  said().clear();
  first.join();
  second.join();
  EXPECT_EQ(said(), (Events{"stream 0 waits for event 2", "stream 0 waits for event 4"}));
}

TEST_F(Copies, the_stream_comes_back_where_a_copy_fails) {
  EXPECT_THROW(copies.run(device, [] { throw std::runtime_error("no room"); }), std::runtime_error);
  EXPECT_EQ(current, 0);
}

TEST_F(Copies, on_the_cpu_are_made_at_once) {
  int made = 0;
  copies.run(at::Device(at::kCPU), [&] { ++made; }).join();
  CopyStream::Moment().join();
  EXPECT_EQ(made, 1);
  EXPECT_TRUE(said().empty());
}

}  // namespace
}  // namespace drivetrain
