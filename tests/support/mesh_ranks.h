// Ranks as threads of this process, each with its mesh over communicator/local: for what needs groups and no training.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <drivetrain/communicator.h>
#include <drivetrain/error.h>
#include <drivetrain/mesh.h>
#include <drivetrain/services.h>
#include <gtest/gtest.h>

#include "plugin/registry.h"
#include "rendezvous/rendezvous.h"
#include "support/quiet_log.h"

namespace drivetrain::test {

// Runs `body` with every rank's mesh; what each threw, "" for nothing.
inline std::vector<std::string> on_ranks(const std::vector<Axis>& axes, const std::function<void(const Mesh&)>& body) {
  static const Registry registry(SearchPath::standard({}, {}, ""));  // the plugins beside libdrivetrain.so
  int64_t world = 1;
  for (const Axis& axis : axes) world *= axis.size;
  const auto store = make_local_store();
  std::vector<std::string> errors(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < world; ++r)
    threads.emplace_back([&, r] {
      QuietLog log;
      const Services services{log, *store, r, world, r, world, at::Device(at::kCPU), 0, {}, nullptr};
      std::shared_ptr<Communicator> communicator;
      try {
        communicator = registry.create<Communicator>("local", nullptr, services);
        const Mesh mesh(axes, r, world, communicator);
        mesh.world();  // everyone knows everyone before the first may be done and leave
        body(mesh);
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(r)] = e.what();
        if (communicator) communicator->abort(e.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void expect_on_ranks(const std::vector<Axis>& axes, const std::function<void(const Mesh&)>& body) {
  for (const std::string& error : on_ranks(axes, body)) EXPECT_EQ(error, "");
}

}  // namespace drivetrain::test
