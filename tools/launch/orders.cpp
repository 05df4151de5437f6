#include "launch/orders.h"

#include "launch/message.h"

namespace drivetrain::program {
namespace {

class FieldWriter {
 public:
  template <class... Fields>
  void operator()(const Fields&... fields) {
    (put(fields), ...);
  }
  std::string text() const { return packed(list_); }

 private:
  void put(const std::string& text) { list_.push_back(text); }
  void put(bool yes) { list_.emplace_back(yes ? "1" : "0"); }
  void put(int number) { list_.push_back(std::to_string(number)); }
  void put(double number) { list_.push_back(std::to_string(number)); }
  template <class One>
  void put(const std::vector<One>& list) {
    put(static_cast<int>(list.size()));
    for (const One& one : list) put(one);
  }

  std::vector<std::string> list_;
};

// What is none of these fields throws std::exception.
class FieldReader {
 public:
  explicit FieldReader(const std::string& text) : list_(unpacked(text)) {}
  template <class... Fields>
  void operator()(Fields&... fields) {
    (take(fields), ...);
  }

 private:
  void take(std::string& text) { text = list_.at(next_++); }
  void take(bool& yes) { yes = list_.at(next_++) == "1"; }
  void take(int& number) { number = std::stoi(list_.at(next_++)); }
  void take(double& number) { number = std::stod(list_.at(next_++)); }
  template <class One>
  void take(std::vector<One>& list) {
    int count = 0;
    take(count);
    list.resize(static_cast<size_t>(count));
    for (One& one : list) take(one);
  }

  std::vector<std::string> list_;
  size_t next_ = 0;
};

// The fields of each order, as they are sent.
template <class Do>
void each_field(RankSetup& setup, Do& with) {
  with(setup.log_folder, setup.log_begin, setup.logs_may_be_there, setup.bind_cores, setup.core_list);
}

template <class Do>
void each_field(PrepareOrder& order, Do& with) {
  with(order.folder, order.config, order.program, order.has_rank_0, order.master_addr, order.master_port, order.peers,
       order.slots, order.run_folder, order.files, order.is_again, order.environment);
  each_field(order.setup, with);
}

template <class Do>
void each_field(StartOrder& order, Do& with) {
  with(order.first, order.world, order.slots, order.local, order.only_rank_0, order.master_addr, order.master_port,
       order.master_listens, order.token, order.begun_folder, order.signals_reach_ranks, order.keeps_flight_records,
       order.may_stand_s, order.rank_0_out, order.rank_0_err, order.environment, order.command);
  Deadlines& deadlines = order.deadlines;
  with(deadlines.peers_s, deadlines.sigterm_s, deadlines.stopped_s, deadlines.idle_s, deadlines.working_s,
       deadlines.told_s);
  each_field(order.setup, with);
}

template <class Do>
void each_field(ExamineOrder& order, Do& with) {
  with(order.folder, order.may_take_s, order.environment, order.command);
}

template <class Order>
std::string fields_of(Order order) {
  FieldWriter writer;
  each_field(order, writer);
  return writer.text();
}

template <class Order>
Order order_of(const std::string& text) {
  FieldReader reader(text);
  Order order;
  each_field(order, reader);
  return order;
}

}  // namespace

std::string PrepareOrder::text() const { return fields_of(*this); }
std::string StartOrder::text() const { return fields_of(*this); }
std::string ExamineOrder::text() const { return fields_of(*this); }

PrepareOrder PrepareOrder::of(const std::string& text) { return order_of<PrepareOrder>(text); }
StartOrder StartOrder::of(const std::string& text) { return order_of<StartOrder>(text); }
ExamineOrder ExamineOrder::of(const std::string& text) { return order_of<ExamineOrder>(text); }

}  // namespace drivetrain::program
