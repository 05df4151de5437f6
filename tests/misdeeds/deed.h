// What a plugin that misbehaves does, by its options: `in` names the call, `deed` what happens there, `after` the file
// from whose coming on it happens. The strategy also keeps a run where a test wants it: with a file of the folder
// `gates` that has the number of a step as its name, that step does not begin.
#pragma once

#include <c10/util/Exception.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include <drivetrain/error.h>
#include <drivetrain/options.h>
#include <drivetrain/services.h>

#include "support/waiting.h"

namespace drivetrain::misdeeds {

struct Options {
  std::string in, deed, after, gates;
  int64_t rank = -1;  // only this one; -1: all
  double slow_ms = 200;
};

class Deed {
 public:
  Deed(const Options& options, const Services& services)
      : options_(options), here_(options.rank < 0 || options.rank == services.rank) {
    at("create");
  }
  // Whether `deed` is done here, now.
  bool is(const char* deed) const { return here_ && options_.deed == deed && has_come(); }
  // Whether it is done somewhere, at some time.
  bool is_ever(const char* deed) const { return options_.deed == deed; }
  bool waits_for_a_file() const { return !options_.after.empty(); }
  void at(const char* call) const {
    if (!here_ || options_.in != call) return;
    if (is("std")) throw std::runtime_error("the tape drive is on fire");
    if (is("c10")) TORCH_CHECK(false, "the tape drive is on fire");
    if (is("int")) throw 7;
    if (is("bad_alloc")) throw std::bad_alloc();
    if (is("device")) fail_as_a_device();
    if (is("device on a thread")) std::thread(fail_as_a_device).join();
    if (is("error")) throw fail(ErrorCode::numeric, "the tape drive is on fire");
    if (is("unreachable")) throw fail(ErrorCode::communication, "the tape drive does not answer");
    if (is("crash")) std::raise(SIGSEGV);
    if (is("exit")) std::exit(0);
    if (is("_exit")) _exit(0);
    if (is("close")) closefrom(3);
    if (is("long text")) throw std::runtime_error("the tape drive is on fire" + std::string(5 << 20, '!'));
    if (is("throw on a thread")) std::thread([] { throw std::runtime_error("the tape drive is on fire"); }).join();
    if (is("double free")) free_twice();
    if (is("slow")) test::let_pass(options_.slow_ms / 1000);  // Waits: that is the deed
    while (is("hang")) test::let_pass(0.05);                  // Waits: that is the deed
  }
  void stand_at_gate(int64_t step) const {
    const std::string gate = options_.gates + "/" + std::to_string(step);
    while (!options_.gates.empty() && access(gate.c_str(), F_OK) == 0) test::let_pass(0.005);  // Waits: for the test
  }

 private:
  [[noreturn]] static void fail_as_a_device() {
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, 999,
                                "CUDA error: unknown error");
  }
  static void free_twice() {
    void* const block = std::malloc(100);
    void* volatile again = block;  // which the compiler does not look through
    std::free(block), std::free(again);
  }
  bool has_come() const { return options_.after.empty() || access(options_.after.c_str(), F_OK) == 0; }

  const Options options_;
  const bool here_;
};

inline OptionTable deed_options() {
  return table<Options>()
      .field("in", &Options::in, "the call")
      .field("deed", &Options::deed, "what happens there")
      .field("after", &Options::after, "a file: it happens once that is there; \"\": from the beginning")
      .field("gates", &Options::gates, "a folder: a step does not begin while a file there has its number as name")
      .field("rank", &Options::rank, "where; -1: everywhere")
      .field("slow_ms", &Options::slow_ms, "how long the deed \"slow\" takes");
}

template <class Kind>
class Wrong : public Kind {
 public:
  using Options = misdeeds::Options;
  static OptionTable options() { return deed_options(); }
  Wrong(const Options& options, const Services& services) : deed_(options, services), services_(services) {}
  ~Wrong() override { deed_.at("destructor"); }

 protected:
  const Deed deed_;
  const Services& services_;
};

}  // namespace drivetrain::misdeeds
