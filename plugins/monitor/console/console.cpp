// What a person sees of a run: one progress line that every step replaces (on a terminal), and a plain line that stays
// every steps_per_print steps, with every evaluation, for every skipped step, and for the first and the last step.
#include <drivetrain/monitor.h>

#include <cmath>

#include <drivetrain/services.h>
#include <drivetrain/toolkit/text.h>

namespace {

using namespace drivetrain;

// 980, 12.3k, 1.2M
std::string short_number(double x) {
  if (x < 999.5) return formatted("%.0f", x);
  if (x < 999.95e3) return formatted("%.1fk", x / 1e3);
  if (x < 999.95e6) return formatted("%.1fM", x / 1e6);
  return formatted("%.1fG", x / 1e9);
}

// 45s, 3m12s, 2h05m, 3d04h
std::string duration(double seconds) {
  const auto s = static_cast<long long>(seconds + 0.5);
  if (s < 60) return formatted("%llds", s);
  if (s < 3600) return formatted("%lldm%02llds", s / 60, s % 60);
  if (s < 86400) return formatted("%lldh%02lldm", s / 3600, s / 60 % 60);
  return formatted("%lldd%02lldh", s / 86400, s / 3600 % 24);
}

double number(const Value& data, const char* key, double otherwise = 0) {
  const Value* value = data.find(key);
  return value && value->is_number() ? value->as_double() : otherwise;
}

class Console : public Monitor {
 public:
  Console(const NoOptions&, const Services& services) : log_(services.log) {}

  void on_event(const Event& event) override {
    if (event.type == "run_begin") {
      train_steps_ = static_cast<int64_t>(number(event.data, "train_steps"));
      steps_per_print_ = static_cast<int64_t>(number(event.data, "steps_per_print"));
    }
    if (event.type == "step") step(event);
  }

 private:
  void step(const Event& event) {
    average(event.data);
    const std::string line = text(event);
    if (is_kept(event)) log_.info(line);
    log_.progress(line);
    ++seen_;
  }

  bool is_kept(const Event& event) const {
    return seen_ == 0 || event.step == train_steps_ || (steps_per_print_ > 0 && event.step % steps_per_print_ == 0) ||
           event.data.find("valid_loss") || !sets_text(event.data).empty() || is_skipped(event.data);
  }

  // The first figure of each evaluated set: "eval/SET/FIGURE" says most of it.
  static std::string sets_text(const Value& data) {
    const std::string_view prefix = "eval/";
    std::string text, last;
    for (const Value::Member& m : data.members()) {
      if (!m.key.starts_with(prefix) || !m.value.is_number()) continue;
      const std::string set = m.key.substr(prefix.size(), m.key.find('/', prefix.size()) - prefix.size());
      if (set == last) continue;
      text += concat("  ", m.key.substr(prefix.size()), formatted(" %.4g", m.value.as_double()));
      last = set;
    }
    return text;
  }

  static bool is_without_labels(const Value& data) {
    const Value* loss = data.find("loss");
    return loss && loss->is_null();
  }

  // Null: no label counted.
  static std::string loss_text(const Value& data, const char* name) {
    const Value* loss = data.find(name);
    if (!loss) return "";
    return loss->is_null() ? concat("  ", name, " none") : formatted("  %s %.3f", name, number(data, name, NAN));
  }

  static bool is_skipped(const Value& data) {
    const Value* skipped = data.find("skipped");
    return skipped && skipped->is_bool() && skipped->as_bool();
  }

  // Speed and time left come from a moving average over about ten steps. The first step, which pays for warming up,
  // counts only until there is another.
  void average(const Value& data) {
    const double weight = seen_ < 2 ? 1 : 0.1;
    const double step_s = number(data, "step_s");
    step_s_ += weight * (step_s - step_s_);
    tokens_ += weight * (number(data, "tokens_per_s") * step_s - tokens_);
  }

  std::string text(const Event& event) const {
    const Value& data = event.data;
    std::string line = concat("step ", event.step);
    if (train_steps_ > 0) line += concat("/", train_steps_);
    line += loss_text(data, "loss") + loss_text(data, "valid_loss");
    line += sets_text(data);
    if (data.find("grad_norm") && !is_without_labels(data))
      line += formatted("  grad_norm %.3g", number(data, "grad_norm", NAN));
    if (data.find("lr")) line += formatted("  lr %.1e", number(data, "lr", NAN));
    if (is_skipped(data)) line += "  skipped";
    if (data.find("loss_scale")) line += formatted("  loss_scale %.0f", number(data, "loss_scale", NAN));
    if (step_s_ > 0) line += "  " + short_number(tokens_ / step_s_) + " tokens/s";
    if (train_steps_ > event.step)
      line += "  eta " + duration(static_cast<double>(train_steps_ - event.step) * step_s_);
    return line;
  }

  Log& log_;
  int64_t train_steps_ = 0, steps_per_print_ = 0, seen_ = 0;
  double step_s_ = 0, tokens_ = 0;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Monitor, "console", Console)
