#include "state/hf_folder.h"

#include <filesystem>
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/options.h>
#include <drivetrain/toolkit/files/not_a_model.h>

#include "base/printable.h"

namespace drivetrain {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

std::string in_folder(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

bool is_plain_name(const std::string& name) {
  if (name.empty() || name == "." || name == "..") return false;
  return name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

// Why a folder cannot be used, in words that fit what is in it.
Error nothing_to_read(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return fail(ErrorCode::config, folder,
                ": is not a folder; a Hugging Face model folder was wanted\n   check the path");
  }
  for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!std::filesystem::exists(in_folder(folder, pickle), error)) continue;
    return fail(ErrorCode::config, folder, ": has only ", pickle,
                ", a pickle, which could run code and is not read\n   ",
                "convert it: load it with transformers and call save_pretrained(folder, safe_serialization=True)");
  }
  if (const std::string other = held_instead_of_model(folder); !other.empty())
    return fail(ErrorCode::config, folder, ": ", other);
  return fail(ErrorCode::config, folder, ": has neither ", kSingleFile, " nor ", kIndexFile,
              "\n   a Hugging Face model folder with safetensors was wanted");
}

// tensor name -> shard name, as the index says.
std::map<std::string, std::string> read_weight_map(const Value& index, const std::string& path, Problems& problems) {
  std::map<std::string, std::string> map;
  const Value* weight_map = index.find("weight_map");
  if (!weight_map || !weight_map->is_object() || weight_map->members().empty()) {
    problems.add(weight_map ? weight_map->where : Position{path, 1, 1},
                 "weight_map must be an object that says for each tensor which file holds it");
    return map;
  }
  for (const Value::Member& member : weight_map->members()) {
    if (!member.value.is_string() || !is_plain_name(member.value.as_string())) {
      problems.add(member.value.where,
                   concat("tensor \"", shown(member.key), "\": the file must be a plain name in this folder, found ",
                          member.value.to_json()));
      continue;
    }
    map[member.key] = member.value.as_string();
  }
  return map;
}

}  // namespace

HfFolder::HfFolder(const std::string& folder) : folder_(folder) {
  const std::string single = in_folder(folder, kSingleFile), index = in_folder(folder, kIndexFile);
  if (std::filesystem::exists(single)) {
    files_.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::open(single)));
    for (const std::string& name : files_.back()->names()) tensors_[name] = files_.back().get();
  } else if (std::filesystem::exists(index)) {
    open_shards(index);
  } else {
    throw nothing_to_read(folder);
  }
}

HfFolder::HfFolder(const std::string& folder, const std::string& file) : folder_(folder) {
  const std::string path = in_folder(folder, file);
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown))
    throw fail(ErrorCode::config, folder, ": has no ", file, ", which holds the weights of such a folder\n   ",
               "check the path");
  files_.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::open(path)));
  for (const std::string& name : files_.back()->names()) tensors_[name] = files_.back().get();
}

void HfFolder::open_shards(const std::string& index_path) {
  const Value index = read_json_file(index_path);
  Problems problems;
  const std::map<std::string, std::string> weight_map = read_weight_map(index, index_path, problems);
  std::set<std::string> shard_names;
  for (const auto& [tensor, shard] : weight_map) shard_names.insert(shard);
  const Position where{index_path, 0, 0};

  uint64_t bytes = 0;
  std::map<std::string, std::string> holder;  // tensor -> shard, as the shards say
  std::set<std::string> unreadable;
  for (const std::string& shard : shard_names) {
    try {
      files_.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::open(in_folder(folder_, shard))));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::config) throw;
      problems.add(where, concat("names a file that is not there: ", error.what()));
      unreadable.insert(shard);
      continue;
    }
    bytes += files_.back()->data_bytes();
    for (const std::string& name : files_.back()->names()) {
      const auto [first, fresh] = holder.emplace(name, shard);
      if (!fresh)
        problems.add(where, concat("tensor \"", shown(name), "\" is in two files, ", first->second, " and ", shard));
      if (!weight_map.count(name))
        problems.add(where, concat("does not list tensor \"", shown(name), "\", which ", shard, " has"));
      tensors_[name] = files_.back().get();
    }
  }
  for (const auto& [name, shard] : weight_map) {
    const auto found = holder.find(name);
    if (unreadable.count(shard) || (found != holder.end() && found->second == shard)) continue;
    problems.add(where, concat("tensor \"", shown(name), "\" should be in ", shard, ", which does not have it",
                               found == holder.end() ? "" : "; it is in " + found->second));
  }
  problems.throw_if_any();

  const Value* metadata = index.find("metadata");
  const Value* total = metadata ? metadata->find("total_size") : nullptr;
  if (total && total->is_number() && total->as_double() != static_cast<double>(bytes)) {
    warnings_.push_back(
        concat(total->where.text(), ": total_size says ", total->to_json(), " bytes, the tensors have ", bytes));
  }
}

bool HfFolder::has_weights(const std::string& folder) {
  std::error_code unknown;
  return std::filesystem::exists(in_folder(folder, kSingleFile), unknown) ||
         std::filesystem::exists(in_folder(folder, kIndexFile), unknown);
}

const SafetensorsFile& HfFolder::checked(const std::string& name) const {
  if (const SafetensorsFile* file = file_of(name)) return *file;
  throw fail(ErrorCode::config, folder_, ": has no tensor \"", shown(name), "\"");
}

Value HfFolder::config() const { return read_json_file(in_folder(folder_, "config.json")); }

std::vector<std::string> HfFolder::names() const {
  std::vector<std::string> list;
  for (const auto& [name, file] : tensors_) list.push_back(name);
  return list;
}

const SafetensorsFile* HfFolder::file_of(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

}  // namespace drivetrain
