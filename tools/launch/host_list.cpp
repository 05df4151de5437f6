#include "launch/host_list.h"

#include <strings.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

#include <drivetrain/toolkit/text.h>

#include "base/piped.h"
#include "base/printable.h"
#include "base/suggest.h"
#include "cli/commands.h"
#include "cli/usage_error.h"
#include "launch/config_document.h"

namespace drivetrain::program {
namespace {

constexpr int64_t kMostSlots = 4096;
constexpr uintmax_t kLargestHostfile = 16U << 20;
constexpr const char* kLineForm = "a line is \"NAME slots=K\", such as \"worker-0 slots=4\"; # begins a comment";

std::string without_brackets(const std::string& name) {
  const bool bracketed = name.size() > 2 && name.front() == '[' && name.back() == ']';
  return bracketed ? name.substr(1, name.size() - 2) : name;
}

// A name that begins with '-' would be an option of ssh.
bool is_host_name(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string(".-_:%").find(c) != std::string::npos;
  };
  return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), fits);
}

std::string name_problem(const std::string& name) {
  if (name.find('@') != std::string::npos)
    return "\"" + shown(name) + "\" is no host name: name the user in ~/.ssh/config, or by --launcher_args \"-l USER\"";
  return "\"" + shown(name) + "\" is no host name or address: it has letters, digits and . - _ : only, and no - first";
}

class HostfileReader {
 public:
  explicit HostfileReader(const std::string& path) : path_(path) {}

  std::vector<Host> read(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      ++number_;
      if (!line.empty() && line.back() == '\r') line.pop_back();  // written on Windows
      take(line.substr(0, line.find('#')));
    }
    if (hosts_.empty()) throw UsageError("launch: the hostfile " + path_ + " names no host; " + std::string(kLineForm));
    return std::move(hosts_);
  }

 private:
  [[noreturn]] void refuse_line(const std::string& problem) const {
    throw UsageError("launch: " + path_ + ":" + std::to_string(number_) + ": " + problem);
  }

  void take(const std::string& line) {
    std::istringstream words(line);
    std::string name, slots, further;
    if (!(words >> name)) return;
    words >> slots >> further;
    if (!slots.starts_with("slots="))
      refuse_line("wanted slots=K after the host, got " + (slots.empty() ? "nothing" : "\"" + shown(slots) + "\"") +
                  "; " + kLineForm);
    if (!further.empty()) refuse_line("\"" + shown(further) + "\" was not expected; " + kLineForm);
    const auto count = cli::read_whole(slots.substr(6));
    if (!count || *count < 1 || *count > kMostSlots)
      refuse_line("slots wants a whole number from 1 to " + std::to_string(kMostSlots) + ", got \"" +
                  shown(slots.substr(6)) + "\"");
    add(without_brackets(name), static_cast<size_t>(*count));
  }

  void add(const std::string& name, size_t count) {
    if (!is_host_name(name)) refuse_line(name_problem(name));
    const auto [before, is_new] = lines_.try_emplace(lower_case(name), number_);
    if (!is_new)
      refuse_line("the host " + name + " stands here and in line " + std::to_string(before->second) +
                  "; give it one line with all its slots");
    hosts_.push_back({name, std::vector<int>(count), number_});
    std::iota(hosts_.back().slots.begin(), hosts_.back().slots.end(), 0);
  }

  const std::string path_;
  int number_ = 0;
  std::vector<Host> hosts_;
  std::map<std::string, int> lines_;  // of names in small letters, as the network knows them
};

HostFilter parse_one_filter(const std::string& text, const std::string& option) {
  const auto refuse_filter = [&](const std::string& problem) {
    throw UsageError("launch: " + option + ": " + problem +
                     "; it is HOST[:SLOT[,SLOT...]] with @ between hosts, such as worker-0@worker-1:0,2");
  };
  const bool bracketed = text.starts_with('[');
  const size_t end_of_name = bracketed ? text.find(']') : 0;
  if (end_of_name == std::string::npos) refuse_filter("\"" + shown(text) + "\" has [ and no ]");
  const size_t colon = text.find(':', end_of_name);
  HostFilter filter{without_brackets(text.substr(0, colon)), {}};
  if (!is_host_name(filter.name)) refuse_filter("\"" + shown(text.substr(0, colon)) + "\" is no host name");
  if (colon == std::string::npos) return filter;
  const std::string list = text.substr(colon + 1);
  if (!bracketed && list.find(':') != std::string::npos)
    refuse_filter("\"" + shown(text) + "\" has several colons: an IPv6 address stands in brackets, [fd00::1]:0,2");
  for (size_t begin = 0; begin <= list.size();) {
    const size_t comma = std::min(list.find(',', begin), list.size());
    const auto slot = cli::read_whole(list.substr(begin, comma - begin));
    if (!slot || *slot < 0 || *slot >= kMostSlots)
      refuse_filter("\"" + shown(list.substr(begin, comma - begin)) + "\" of \"" + shown(text) +
                    "\" is no number of a slot");
    filter.slots.push_back(static_cast<int>(*slot));
    begin = comma + 1;
  }
  return filter;
}

const Host& host_of_filter(const std::vector<Host>& hosts, const HostFilter& filter, const std::string& option) {
  std::vector<std::string> known;
  for (const Host& host : hosts) {
    if (!same_host_name(host.name, filter.name)) {
      known.push_back(host.name);
      continue;
    }
    for (const int slot : filter.slots)
      if (std::find(host.slots.begin(), host.slots.end(), slot) == host.slots.end())
        throw UsageError("launch: " + option + ": the host " + host.name + " has no slot " + std::to_string(slot) +
                         "; it has " + std::to_string(host.slots.size()) + ", counted from 0");
    return host;
  }
  throw UsageError("launch: " + option + ": there is no host " + shown(filter.name) + " in the hostfile" +
                   suggestion(filter.name, known));
}

std::vector<Host> with_slots_only(const std::vector<Host>& hosts, const std::string& option) {
  std::vector<Host> list;
  for (const Host& host : hosts)
    if (!host.slots.empty()) list.push_back(host);
  if (list.empty()) throw UsageError("launch: " + option + " leaves no slot of any host");
  return list;
}

}  // namespace

bool same_host_name(const std::string& a, const std::string& b) { return strcasecmp(a.c_str(), b.c_str()) == 0; }

std::string host_name_problem(const std::string& name) { return is_host_name(name) ? "" : name_problem(name); }

std::vector<Host> parse_hostfile(const std::string& text, const std::string& path) {
  return HostfileReader(path).read(text);
}

std::vector<Host> read_hostfile(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError("launch: cannot read the hostfile " + path + (why.empty() ? "" : ", " + why) +
                     "; it is a text file, and " + kLineForm);
  };
  std::error_code none;
  const auto type = std::filesystem::status(path, none).type();
  if (type == std::filesystem::file_type::fifo)
    return parse_hostfile(read_pipe(path, "the hostfile " + path, static_cast<double>(kPipeTime.count())), path);
  if (type == std::filesystem::file_type::directory) refuse("which is a folder");
  if (type != std::filesystem::file_type::regular && std::filesystem::exists(path, none)) refuse("which is a device");
  if (std::filesystem::file_size(path, none) > kLargestHostfile && !none) refuse("which has more than 16 MB");
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) refuse("");
  return parse_hostfile(text.str(), path);
}

std::vector<HostFilter> parse_host_filter(const std::string& text, const std::string& option) {
  std::vector<HostFilter> list;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('@', begin), text.size());
    const HostFilter one = parse_one_filter(text.substr(begin, end - begin), option);
    begin = end + 1;
    const auto same =
        std::find_if(list.begin(), list.end(), [&](const HostFilter& f) { return same_host_name(f.name, one.name); });
    if (same == list.end())
      list.push_back(one);
    else
      same->slots.insert(same->slots.end(), one.slots.begin(), one.slots.end());
  }
  for (HostFilter& one : list) {
    std::sort(one.slots.begin(), one.slots.end());
    one.slots.erase(std::unique(one.slots.begin(), one.slots.end()), one.slots.end());
  }
  return list;
}

std::vector<Host> include_hosts(const std::vector<Host>& hosts, const std::string& filter) {
  const auto wanted = parse_host_filter(filter, "--include");
  for (const HostFilter& one : wanted) host_of_filter(hosts, one, "--include");
  std::vector<Host> list;
  for (const Host& host : hosts)
    for (const HostFilter& one : wanted)
      if (same_host_name(one.name, host.name))
        list.push_back({host.name, one.slots.empty() ? host.slots : one.slots, host.line});
  return with_slots_only(list, "--include");
}

std::vector<Host> exclude_hosts(const std::vector<Host>& hosts, const std::string& filter) {
  const auto unwanted = parse_host_filter(filter, "--exclude");
  for (const HostFilter& one : unwanted) host_of_filter(hosts, one, "--exclude");
  std::vector<Host> list = hosts;
  for (Host& host : list)
    for (const HostFilter& one : unwanted)
      if (same_host_name(one.name, host.name))
        std::erase_if(host.slots, [&](int slot) {
          return one.slots.empty() || std::find(one.slots.begin(), one.slots.end(), slot) != one.slots.end();
        });
  return with_slots_only(list, "--exclude");
}

std::vector<Host> first_hosts(std::vector<Host> hosts, int nodes, int per_host) {
  if (nodes > static_cast<int>(hosts.size()))
    throw UsageError("launch: --num_nodes " + std::to_string(nodes) + ": the hostfile has " + hosts_text(hosts.size()));
  if (nodes > 0) hosts.resize(static_cast<size_t>(nodes));
  for (Host& host : hosts) {
    if (per_host > static_cast<int>(host.slots.size()))
      throw UsageError("launch: -n " + std::to_string(per_host) + ": the host " + host.name +
                       " has slots=" + std::to_string(host.slots.size()) + " in the hostfile");
    if (per_host > 0) host.slots.resize(static_cast<size_t>(per_host));
  }
  return hosts;
}

int ranks_of(const std::vector<Host>& hosts) {
  size_t count = 0;
  for (const Host& host : hosts) count += host.slots.size();
  return static_cast<int>(count);
}

std::string hosts_text(size_t count) { return std::to_string(count) + (count == 1 ? " host" : " hosts"); }

}  // namespace drivetrain::program
