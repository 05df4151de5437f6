#include <drivetrain/toolkit/copy_stream.h>

namespace drivetrain {
namespace {

// Of LibTorch's library for the device, if it is open.
c10::impl::VirtualGuardImpl guard_of(const at::Device& device) { return c10::impl::VirtualGuardImpl(device.type()); }

// Makes `stream` the current one of this thread for a scope.
class OnStream {
 public:
  explicit OnStream(const c10::Stream& stream)
      : guard_(guard_of(stream.device())), before_(guard_.exchangeStream(stream)) {}
  OnStream(const OnStream&) = delete;
  ~OnStream() { guard_.exchangeStream(before_); }

 private:
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream before_;
};

}  // namespace

void CopyStream::Moment::join() const {
  if (event_) event_->block(guard_of(device_).getStream(device_));
}

CopyStream::Moment CopyStream::run(const at::Device& device, const std::function<void()>& enqueue) {
  Moment end;
  if (device.is_cpu()) {
    enqueue();
    return end;
  }
  const c10::impl::VirtualGuardImpl guard = guard_of(device);
  if (!stream_) stream_ = guard.getStreamFromGlobalPool(device);
  c10::Event begin(device.type());
  begin.record(guard.getStream(device));
  begin.block(*stream_);
  {
    const OnStream on(*stream_);
    enqueue();
  }
  end.event_ = std::make_shared<c10::Event>(device.type()), end.device_ = device;
  end.event_->record(*stream_);
  return end;
}

void CopyStream::reads(const at::Tensor& t) const {
  if (stream_) t.record_stream(*stream_);
}

}  // namespace drivetrain
