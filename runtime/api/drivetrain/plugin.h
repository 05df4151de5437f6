// The entry point of a plugin library, the macro that defines it, and the base class of all plugins.
//
// A library exports one symbol, `drivetrain_plugin`, a Boost.DLL alias of a plain C descriptor. Its manifest is in the
// ELF section `.drivetrain.manifest`; drivetrain_add_plugin of the CMake package generates it. The runtime reads the
// manifest before it opens the library, so builds that do not match give an error message and not a crash.
//
//   class Flash : public drivetrain::Attention {
//    public:
//     struct Options { bool verbose = false; };
//     static drivetrain::OptionTable options();               // a plugin without options leaves out both
//     Flash(const Options&, const drivetrain::Services&);     // may throw drivetrain::Error; main thread
//   };
//   DRIVETRAIN_PLUGIN(drivetrain::Attention, "flash", Flash)
#pragma once

#include <cstdint>
#include <memory>

#include <drivetrain/export.h>
#include <drivetrain/options.h>

DRIVETRAIN_CONTRACT(plugin)

namespace drivetrain {

struct Services;
class PlanContext;

// Base of every kind. The constructor, every virtual call and the destructor run on the main thread unless the kind's
// header says otherwise. The library outlives its objects. A call may throw drivetrain::Error; the runtime adds the
// names of plugin, call and unit. Any other exception, except out of memory, is reported as a fault of the plugin.
class DRIVETRAIN_API Plugin {
 public:
  Plugin() = default;
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  virtual ~Plugin();

  // Called before anything is allocated. Claims mesh axes, declares abilities and needs, refuses what does not fit.
  //
  // Called several times on one object, each time with a new context that knows more. Every call declares everything
  // again, since earlier declarations are dropped. The calls, and what is known in them:
  //   1. the configuration and the model's facts;
  //   2. the axes that all plugins claimed;
  //   3. in training only: the batch sizes and the dataset's sequence length;
  //   4. after Strategy::build, Model::build and Recompute::choose: the units of each pipeline stage.
  // Only figures and notes of the last call are shown. Claims, offers, needs, shares and what is taken away must be
  // equal in the last two calls. Reading a fact that is not known yet throws (fact.h); Fact::known tells. Two special
  // cases: if a plugin is replaced by its fallback, planning starts again with new objects of all plugins. And a plugin
  // that is not part of the run may be created and planned once, to find out which abilities it would offer.
  virtual void plan(PlanContext&) {}
};

// The argument of DrivetrainEntry::create. `options`: the struct that the entry's option table parsed; valid during the
// call. `services`: valid as long as the plugin.
struct CreateArgs {
  const void* options;
  const Services* services;
};

}  // namespace drivetrain

extern "C" {
struct DrivetrainEntry {
  uint32_t struct_size;
  const char* kind;          // "attention"
  const char* name;          // "standard"
  const void* (*options)();  // -> const drivetrain::OptionTable*; called only if the fingerprint matches
  // const CreateArgs* -> drivetrain::Plugin*, owned by the caller; may throw drivetrain::Error
  void* (*create)(const void*);
};
struct DrivetrainDescriptor {
  uint32_t magic;        // kDrivetrainMagic
  uint32_t struct_size;  // of this struct
  uint32_t door;         // kDrivetrainEntryLayout
  const char* manifest;  // the text of the manifest section
  const DrivetrainEntry* entries;
  uint32_t entry_count;
};
}

constexpr uint32_t kDrivetrainMagic = 0x44545231;  // "DTR1"
constexpr uint32_t kDrivetrainEntryLayout = 1;     // layout of the two structs above

namespace drivetrain::plugin_entry {

template <class T>
const void* option_table() {
  static const OptionTable* t = [] {
    if constexpr (requires { T::options(); })
      return new OptionTable(T::options());
    else
      return new OptionTable(table<NoOptions>());
  }();
  return t;
}

template <class T>
struct OptionsOf {
  using type = NoOptions;
};
template <class T>
requires requires { typename T::Options; }
struct OptionsOf<T> {
  using type = typename T::Options;
};

template <class Kind, class T>
void* create(const void* raw) {
  static_assert(std::is_base_of_v<Kind, T>, "the class must derive from its kind");
  const auto& args = *static_cast<const CreateArgs*>(raw);
  Kind* object = new T(*static_cast<const typename OptionsOf<T>::type*>(args.options), *args.services);
  return static_cast<Plugin*>(object);
}

template <class Kind, class T>
constexpr DrivetrainEntry entry(const char* name) {
  return {sizeof(DrivetrainEntry), Kind::kKind, name, &option_table<T>, &create<Kind, T>};
}

}  // namespace drivetrain::plugin_entry

// Defined in the generated manifest source of the library.
extern "C" __attribute__((visibility("hidden"))) const char drivetrain_manifest[];

#define DRIVETRAIN_ENTRY(KIND, NAME, CLASS) drivetrain::plugin_entry::entry<KIND, CLASS>(NAME)

// Use once per library: DRIVETRAIN_PLUGINS(DRIVETRAIN_ENTRY(...), DRIVETRAIN_ENTRY(...))
#define DRIVETRAIN_PLUGINS(...)                                                                                 \
  namespace {                                                                                                   \
  const DrivetrainEntry drivetrain_entries[] = {__VA_ARGS__};                                                   \
  const DrivetrainDescriptor drivetrain_descriptor = {                                                          \
      kDrivetrainMagic,    sizeof(DrivetrainDescriptor), kDrivetrainEntryLayout,                                \
      drivetrain_manifest, drivetrain_entries,           sizeof(drivetrain_entries) / sizeof(DrivetrainEntry)}; \
  }                                                                                                             \
  /* the same as BOOST_DLL_ALIAS, without asking authors for Boost */                                           \
  extern "C" __attribute__((visibility("default"))) const void* const drivetrain_plugin;                        \
  const void* const drivetrain_plugin = &drivetrain_descriptor;

#define DRIVETRAIN_PLUGIN(KIND, NAME, CLASS) DRIVETRAIN_PLUGINS(DRIVETRAIN_ENTRY(KIND, NAME, CLASS))
