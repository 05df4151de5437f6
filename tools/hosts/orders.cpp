#include "hosts/orders.h"

#include <stdexcept>

#include "hosts/message.h"

namespace drivetrain::program {
namespace {

void put_list(std::vector<std::string>& fields, const std::vector<std::string>& list) {
  fields.push_back(std::to_string(list.size()));
  fields.insert(fields.end(), list.begin(), list.end());
}

void put_numbers(std::vector<std::string>& fields, const std::vector<int>& numbers) {
  std::vector<std::string> list;
  for (const int number : numbers) list.push_back(std::to_string(number));
  put_list(fields, list);
}

void put_setup(std::vector<std::string>& fields, const RankSetup& setup) {
  for (const std::string& field : {setup.log_folder, setup.log_begin, std::string(setup.logs_may_be_there ? "1" : "0"),
                                   std::string(setup.bind_cores ? "1" : "0"), setup.core_list})
    fields.push_back(field);
}

// One field after the other.
class Fields {
 public:
  explicit Fields(const std::string& text) : list_(unpacked(text)) {}
  std::string text() { return list_.at(next_++); }
  int number() { return std::stoi(text()); }
  double real() { return std::stod(text()); }
  std::vector<std::string> list() {
    std::vector<std::string> all(static_cast<size_t>(number()));
    for (std::string& one : all) one = text();
    return all;
  }
  std::vector<int> numbers() {
    std::vector<int> all;
    for (const std::string& one : list()) all.push_back(std::stoi(one));
    return all;
  }
  RankSetup setup() {
    RankSetup one;
    one.log_folder = text(), one.log_begin = text(), one.logs_may_be_there = text() == "1";
    one.bind_cores = text() == "1", one.core_list = text();
    return one;
  }

 private:
  std::vector<std::string> list_;
  size_t next_ = 0;
};

}  // namespace

std::string PrepareOrder::text() const {
  std::vector<std::string> fields{
      folder, config, program, has_rank_0 ? "1" : "0", master_addr, std::to_string(master_port)};
  put_list(fields, peers);
  put_numbers(fields, slots);
  fields.push_back(run_folder);
  put_list(fields, files);
  fields.push_back(is_again ? "1" : "0");
  put_list(fields, environment);
  put_setup(fields, setup);
  return packed(fields);
}

PrepareOrder PrepareOrder::of(const std::string& text) {
  Fields fields(text);
  PrepareOrder order;
  order.folder = fields.text(), order.config = fields.text(), order.program = fields.text();
  order.has_rank_0 = fields.text() == "1";
  order.master_addr = fields.text(), order.master_port = fields.number();
  order.peers = fields.list();
  order.slots = fields.numbers();
  order.run_folder = fields.text();
  order.files = fields.list();
  order.is_again = fields.text() == "1";
  order.environment = fields.list();
  order.setup = fields.setup();
  return order;
}

std::string StartOrder::text() const {
  std::vector<std::string> fields{std::to_string(first),
                                  std::to_string(world),
                                  std::to_string(local),
                                  signals_reach_ranks ? "1" : "0",
                                  only_rank_0 ? "1" : "0",
                                  master_addr,
                                  std::to_string(master_port),
                                  token,
                                  std::to_string(peers_may_take_s),
                                  std::to_string(sigterm_may_take_s)};
  put_numbers(fields, slots);
  put_list(fields, environment);
  put_list(fields, command);
  put_setup(fields, setup);
  return packed(fields);
}

StartOrder StartOrder::of(const std::string& text) {
  Fields fields(text);
  StartOrder order;
  order.first = fields.number(), order.world = fields.number(), order.local = fields.number();
  order.signals_reach_ranks = fields.text() == "1";
  order.only_rank_0 = fields.text() == "1";
  order.master_addr = fields.text(), order.master_port = fields.number();
  order.token = fields.text();
  order.peers_may_take_s = fields.real(), order.sigterm_may_take_s = fields.real();
  order.slots = fields.numbers();
  order.environment = fields.list(), order.command = fields.list();
  order.setup = fields.setup();
  return order;
}

std::string ExamineOrder::text() const {
  std::vector<std::string> fields{folder, std::to_string(may_take_s)};
  put_list(fields, environment);
  put_list(fields, command);
  return packed(fields);
}

ExamineOrder ExamineOrder::of(const std::string& text) {
  Fields fields(text);
  ExamineOrder order;
  order.folder = fields.text(), order.may_take_s = fields.real();
  order.environment = fields.list(), order.command = fields.list();
  return order;
}

}  // namespace drivetrain::program
