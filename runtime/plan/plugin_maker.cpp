#include "plan/plugin_maker.h"

namespace drivetrain {
namespace {

class RegistryMaker final : public PluginMaker {
 public:
  RegistryMaker(const Registry& registry, const Services& services) : registry_(registry), services_(services) {}

 private:
  // The options were checked with the rest of the configuration; they are parsed again because a PluginChoice is data.
  std::shared_ptr<Plugin> create_kind(const char* kind, const PluginChoice& choice) const override {
    Problems problems;
    const std::string id = concat(kind, "/", choice.type);
    const auto options = registry_.options(kind, choice.type).parse(choice.params, id, "params", problems);
    problems.throw_if_any();
    return registry_.create_plugin(kind, choice.type, options.get(), services_);
  }

  const Registry& registry_;
  const Services& services_;
};

}  // namespace

std::unique_ptr<const PluginMaker> make_plugin_maker(const Registry& registry, const Services& services) {
  return std::make_unique<RegistryMaker>(registry, services);
}

}  // namespace drivetrain
