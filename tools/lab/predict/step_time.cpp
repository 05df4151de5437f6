#include "predict/step_time.h"

#include <algorithm>
#include <cmath>

#include "report/shape_advice.h"

namespace drivetrain {
namespace {

// Of `together` results [m, n], what their tiles and the last of their waves waste. Half a wave is the mean, which the
// rates of the machine have: they are of shapes of all sizes.
double waves(double m, double n, double together, const Hardware& hardware) {
  const auto whole = [](double size) { return std::max<int64_t>(1, std::llround(size)); };
  const double tiles = static_cast<double>(tiles_of(whole(m), whole(n))) * together;
  const double mean = tiles / (tiles + static_cast<double>(hardware.multiprocessors) / 2);
  return mean / wave_share(whole(m), whole(n), hardware.multiprocessors, together);
}

double sum_of(const std::vector<ProductWork>& list, const StepWork& work, const Hardware& hardware) {
  double seconds = 0;
  for (const ProductWork& product : list)
    seconds += product_seconds(product, product.dtype.empty() ? work.dtype : product.dtype, hardware);
  return seconds;
}

double flops_of(const std::vector<ProductWork>& list) {
  double flops = 0;
  for (const ProductWork& product : list) flops += product.flops();
  return flops;
}

// Of one micro-batch.
struct Computation {
  double products = 0, attention = 0, passes = 0, loss = 0, host = 0;
  double products_again = 0, attention_again = 0, passes_again = 0;
  double forward = 0;  // of products, attention and passes
  double again() const { return products_again + attention_again + passes_again; }
  double all() const { return products + attention + passes + loss + host + again(); }
  // Beside which messages of gradients move: two thirds of what is forward and backward, and what runs again.
  double backward() const { return 2.0 / 3 * (products + attention + passes) + again(); }
};

Computation computation_of(const StepWork& work, const Hardware& hardware) {
  const double forward = sum_of(work.products, work, hardware), head = sum_of(work.head, work, hardware);
  const double length = work.attention_length > 0 ? work.attention_length : work.seq_length;
  const double attention_rate =
      hardware.peak(work.dtype) * hardware.attention.share / (1 + hardware.attention.half_seq / std::max(length, 1.0));
  const double attention = work.attention_flops / attention_rate, passes = work.passed_bytes / hardware.pass_rate();
  const double kept = work.attention_bytes / hardware.pass_rate();  // scores in memory, beside the products
  Computation c;
  c.forward = forward + head + attention + kept + passes;
  c.products = 3 * (forward + head);
  c.attention = (1 + work.attention_backward) * attention + kept + work.attention_bytes_backward / hardware.pass_rate();
  c.passes = 3 * passes;
  c.loss = work.loss_bytes / hardware.pass_rate();
  c.host = work.unit_visits * hardware.overheads.unit_us * 1e-6 + hardware.overheads.micro_batch_us * 1e-6;
  c.products_again = work.again * forward;
  c.attention_again = work.attention_again * (attention + kept);
  c.passes_again = work.passes_again * passes;
  return c;
}

// `update_room`: seconds of the optimizer's products that no message covers yet.
TimePart message_part(const MessageWork& message, const Computation& c, double overlap, double& update_room,
                      const Hardware& hardware) {
  const auto seconds_by = message.direct ? direct_seconds : ring_seconds;
  const double seconds = seconds_by(message.bytes, message.hops, message.group, hardware);
  const double room = message.beside_update ? update_room : overlap * message.beside_micro_batches * c.backward();
  const double hidden = std::min(seconds, room);
  if (message.beside_update) update_room -= hidden;
  return {message.axis + ": " + message.what, seconds - hidden, hidden};
}

// Values are copied before they are gathered, and gradients after they are summed, so copies hide in the room of a step
// that messages and other copies leave.
class CopyRooms {
 public:
  CopyRooms(const Computation& c, double micro_batches, double hidden_messages, double update, double overlap)
      : forward_{overlap * c.forward, overlap * c.forward * micro_batches},
        backward_{overlap * c.backward(), overlap * c.backward() * micro_batches - hidden_messages},
        update_{update, update} {}

  TimePart part(const HostTraffic& copies, const Hardware& hardware) {
    using Beside = HostTraffic::Beside;
    const double seconds = copies.bytes / hardware.pcie_rate();
    double hidden = 0;
    if (copies.beside == Beside::forward) hidden = forward_.take(seconds, copies.micro_batches);
    if (copies.beside == Beside::backward) hidden = backward_.take(seconds, copies.micro_batches);
    if (copies.beside == Beside::update) hidden = update_.take(seconds, 1);
    return {"copies: " + copies.what, seconds - hidden, hidden};
  }

 private:
  struct Room {
    double of_micro_batch = 0, left = 0;
    double take(double seconds, int64_t micro_batches) {
      const double most = std::min(left, of_micro_batch * static_cast<double>(micro_batches));
      const double hidden = std::clamp(seconds, 0.0, std::max(0.0, most));
      left -= hidden;
      return hidden;
    }
  };
  Room forward_, backward_, update_;
};

void add(StepTime& time, TimePart part) {
  if (part.seconds <= 0 && part.hidden <= 0) return;
  time.seconds += part.seconds;
  time.parts.push_back(std::move(part));
}

}  // namespace

double product_seconds(const ProductWork& p, const std::string& dtype, const Hardware& hardware) {
  const ProductRates& rates = hardware.products;
  double slower = (1 + rates.half_rows / p.rows) * (1 + rates.half_width / p.out) * (1 + rates.half_width / p.in);
  if (hardware.multiprocessors > 0)
    slower *= (waves(p.rows, p.out, p.together, hardware) + waves(p.rows, p.in, p.together, hardware) +
               waves(p.out, p.in, p.together, hardware)) /
              3;
  if (p.of_experts && rates.experts_share > 0) slower /= rates.experts_share;
  return p.flops() / (hardware.peak(dtype) * rates.share) * slower;
}

StepTime step_time(const StepWork& work, const Hardware& hardware, double model_flops) {
  const Computation c = computation_of(work, hardware);
  const double m = work.micro_batches;
  StepTime time;
  add(time, {"matrix products", m * c.products});
  add(time, {"attention", m * c.attention});
  add(time, {"passes over memory", m * c.passes});
  add(time, {"logits and loss", m * c.loss});
  add(time, {"recompute", m * c.again()});
  add(time, {"host", m * c.host + hardware.overheads.step_us * 1e-6});
  add(time, {"pipeline idle", work.bubble * m * c.all()});
  const double overlap = work.overlap.value_or(hardware.overlap);
  const double computed = sum_of(work.update_products, work, hardware);
  double hidden_messages = 0, update_room = overlap * computed;
  for (const MessageWork& message : work.messages) {
    TimePart part = message_part(message, c, overlap, update_room, hardware);
    hidden_messages += message.beside_update ? 0 : part.hidden;
    add(time, std::move(part));
  }
  add(time, {"waiting for the slowest rank", hardware.network.rank_latency_us * 1e-6 * work.gradient_ranks});
  add(time, {"norm of gradients", work.norm_bytes / hardware.norm_rate()});
  double update = work.updated_bytes / hardware.memory_rate();
  if (work.host_updated_bytes > 0) update += work.host_updated_bytes / hardware.host_memory_rate();
  const double passes = work.update_passed_bytes > 0 ? work.update_passed_bytes / hardware.pass_rate() : 0;
  add(time, {"optimizer", update + computed + passes});
  CopyRooms rooms(c, m, hidden_messages, update, overlap);
  for (const HostTraffic& copies : work.copies) add(time, rooms.part(copies, hardware));
  add(time, {"fixed", work.fixed_s});
  const double peak = hardware.peak(work.dtype);
  time.products_share = (flops_of(work.products) + flops_of(work.head)) / ((c.products / 3) * peak + 1e-300);
  time.tgs = work.tokens / time.seconds;
  if (work.seq_length > 0) time.samples_per_s = time.tgs * work.ranks / work.seq_length;
  time.tflops = time.tgs * model_flops / 1e12;
  time.mfu = time.tgs * model_flops / peak;
  return time;
}

Value StepTime::to_value() const {
  Value list = Value::array();
  for (const TimePart& part : parts) {
    Value one = Value::object();
    one.set("what", part.what), one.set("seconds", part.seconds), one.set("hidden_seconds", part.hidden);
    list.items().push_back(std::move(one));
  }
  Value value = Value::object();
  value.set("seconds", seconds), value.set("tgs", tgs), value.set("tflops", tflops), value.set("mfu", mfu);
  value.set("samples_per_s", samples_per_s);
  value.set("products_share_of_peak", products_share), value.set("parts", std::move(list));
  return value;
}

}  // namespace drivetrain
