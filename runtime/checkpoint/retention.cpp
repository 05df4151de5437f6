#include "checkpoint/retention.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "plugin_calls/plugin_call.h"

namespace drivetrain {

void lower_priority() { setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 10); }

void Retention::remove_left_behind() {
  std::vector<std::string>& left = parts_.left_behind;
  for (; !left.empty(); left.erase(left.begin())) {
    try {
      plugin_call({parts_.store_id, "remove"}, [&] { parts_.store.remove(left.front()); });
    } catch (const Error& e) {
      if (e.code() != ErrorCode::checkpoint) throw;
      parts_.log.warning(e.what());  // somebody else has removed it
    }
  }
}

std::vector<StoredTag> Retention::own_tags() {
  std::vector<StoredTag> tags = plugin_call({parts_.store_id, "tags"}, [&] { return parts_.store.tags(); });
  std::erase_if(tags, [&](const StoredTag& tag) {
    if (!is_of_another_run(tag, parts_.run_id)) return false;
    if (std::find(strangers_said_.begin(), strangers_said_.end(), tag.tag) == strangers_said_.end()) {
      strangers_said_.push_back(tag.tag);
      parts_.log.warning(concat("the checkpoint ", tag.tag, " beside this run's is of another run, which has saved it ",
                                "meanwhile: it is left alone"));
    }
    return true;
  });
  return tags;
}

void Retention::apply() {
  std::vector<StoredTag> tags;
  try {
    tags = own_tags();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::io) throw;
    return parts_.log.warning(concat("checkpoints that no policy keeps are not removed now: ", e.what()));
  }
  std::vector<bool> kept(tags.size(), false);
  if (!kept.empty()) kept[0] = true;
  for (const NamedPolicy& p : parts_.policies) {
    const std::vector<bool> keeps = plugin_call({p.id, "keep"}, [&] { return p.policy->keep(tags); });
    if (keeps.size() != tags.size())
      throw fail(ErrorCode::plugin, p.id, ": keep returned ", keeps.size(), " answers for ", tags.size(), " tags");
    for (size_t i = 0; i < tags.size(); ++i) kept[i] = kept[i] || keeps[i];
  }
  std::vector<std::string> others;
  for (size_t i = 0; i < tags.size(); ++i)
    if (!kept[i]) others.push_back(tags[i].tag);
  if (others.empty()) return;
  if (parts_.check_place) parts_.check_place();
  if (!parts_.store.asynchronous()) return remove(others);
  wait();
  remover_ = std::thread([this, rank = work_rank(), others] {
    work_rank() = rank;
    lower_priority();
    remove(others);
  });
}

void Retention::wait() {
  if (remover_.joinable()) remover_.join();
}

void Retention::remove(const std::vector<std::string>& tags) noexcept {
  try {
    for (const std::string& tag : tags) plugin_call({parts_.store_id, "remove"}, [&] { parts_.store.remove(tag); });
  } catch (const std::exception& e) {
    parts_.log.warning(concat("a checkpoint that no policy keeps is not removed: ", e.what()));
  }
}

}  // namespace drivetrain
