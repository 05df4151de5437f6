// What a plugin needs around it to be measured alone.
#pragma once

#include <memory>

#include <drivetrain/services.h>
#include "bench/bench.h"
#include "shared/commands.h"

#include "plugin/registry.h"
#include "rendezvous/rendezvous.h"

namespace drivetrain {

struct PluginHost {
  PluginHost(const BenchArguments& arguments, const at::Device& device)
      : registry(search_path(RunSettings(), arguments.all("--plugin-path"))),
        log(make_console_log(console_settings(1))),  // as another rank: warnings and errors only
        store(make_local_store()),
        services{*log, *store} {
    services.device = device;
  }

  // With its default options. Null, with the reason in `refusal`, if it cannot be made here.
  template <class Kind>
  std::shared_ptr<Kind> make(const std::string& name, std::string& refusal) const {
    try {
      return registry.create<Kind>(name, registry.options(Kind::kKind, name).defaults().get(), services);
    } catch (const Error& e) {
      refusal = e.what();
      return nullptr;
    }
  }

  Registry registry;
  std::shared_ptr<Log> log;
  std::shared_ptr<Store> store;
  Services services;
};

}  // namespace drivetrain
