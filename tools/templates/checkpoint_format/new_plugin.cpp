// Folders with a file of torch.save per tensor and an index: torch.load("tensors/00000.pt") reads one from Python.
//
//   index.json         {"new_plugin": 1, "facts": {...}, "tensors": ["model/...", ...]}
//   tensors/NNNNN.pt   the value of tensor N of the index
#include <drivetrain/checkpoint_format.h>
#include <drivetrain/error.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/files/read_file.h>
#include <drivetrain/toolkit/text.h>
#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>
#include <drivetrain/toolkit/torch_files/torch_writer.h>

#include <ATen/ops/empty.h>

namespace {

using namespace drivetrain;

class NewPlugin final : public CheckpointFormat {
 public:
  struct Options {
    int64_t most_index_bytes = 64 << 20;
  };
  static OptionTable options() {
    return table<Options>()
        .field("most_index_bytes", &Options::most_index_bytes, "a longer index.json is none of this format")
        .at_least(1);
  }
  NewPlugin(const Options& options, const Services&) : options_(options) {}

  std::string recognizes(const std::string& folder) const override {
    try {
      return index_of(folder).is_null() ? "" : "new_plugin, a file of torch.save per tensor";
    } catch (const Error& e) {
      if (e.code() == ErrorCode::io) throw;
      return "";
    }
  }

  // Nothing is read yet but the index and the heads of the files. Values come when they are asked for.
  std::shared_ptr<const Checkpoint> open(const std::string& folder, const std::string& tag) const override {
    if (!tag.empty()) throw fail(ErrorCode::config, folder, ": there is one checkpoint here, without tags, no ", tag);
    const Value index = index_of(folder);
    if (index.is_null()) throw fail(ErrorCode::config, folder, ": is no folder of checkpoint_format/new_plugin");
    const auto made = std::make_shared<TorchCheckpoint>(folder);
    made->set_facts() = *index.find("facts");
    int64_t number = 0;
    for (const Value& name : index.find("tensors")->items()) {
      const TorchCheckpoint::File file = TorchFile::open(file_of(folder, number++));
      made->add_whole(name.as_string(), file, file->tensor(file->root(), name.as_string()));
    }
    made->finish();
    return made;
  }

  bool writes() const override { return true; }

  // One tensor is in memory at a time. The index comes last: without it the folder is none.
  void write(const std::string& folder, const Checkpoint& state) const override {
    FileCalls& calls = system_file_calls();
    make_folders(calls, folder + "/tensors");
    Value facts = state.facts(), names = Value::array();
    for (const StoredTensor& tensor : state.tensors()) {
      const StateBox box = whole_of(tensor.shape);
      const at::Tensor values = at::empty({box.rows, box.columns}, at::TensorOptions(tensor.dtype));
      state.read(tensor.name, box, values);
      write_torch_file(file_of(folder, static_cast<int64_t>(names.items().size())), values.view(tensor.shape));
      names.items().push_back(tensor.name);
    }
    facts.set("format", "new_plugin");
    const Value index = Value::Object{{"new_plugin", 1}, {"facts", facts}, {"tensors", names}};
    sync_folder(calls, folder + "/tensors");
    write_durable_file(calls, folder + "/index.json", index.to_json(2));
    sync_folder(calls, folder);
  }

 private:
  static std::string file_of(const std::string& folder, int64_t number) {
    return folder + formatted("/tensors/%05lld.pt", static_cast<long long>(number));
  }

  // Null: there is none, or it is another program's. Error(config) where it is no JSON.
  Value index_of(const std::string& folder) const {
    const std::string path = folder + "/index.json";
    const auto text = read_file(path, static_cast<uint64_t>(options_.most_index_bytes), ErrorCode::config);
    if (!text) return {};
    const Value index = parse_json(*text, path);
    const bool ours = index.is_object() && index.find("new_plugin") && index.find("facts") && index.find("tensors");
    return ours ? index : Value();
  }

  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::CheckpointFormat, "new_plugin", NewPlugin)
