// A store that rank 0 serves in this process, and what the tests of it share: errors as text and code. Whatever ended
// a wait says so in its text.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/error.h>

#include "rendezvous/rendezvous.h"
#include "support/loopback.h"
#include "support/waiting.h"

namespace drivetrain::test {

inline const std::string kSecret = "what the ranks of this test know";

struct Said {
  std::string text = "no error";
  int code = 0;
};
inline Said said_by(const std::function<void()>& action) {
  Said said;
  try {
    action();
  } catch (const Error& e) {
    said.text = e.what(), said.code = static_cast<int>(e.code());
  }
  return said;
}

inline void expect_words(const Said& said, const std::vector<std::string>& words, int code = 5) {
  EXPECT_EQ(said.code, code) << said.text;
  for (const std::string& word : words)
    EXPECT_NE(said.text.find(word), std::string::npos) << said.text << "\nwanted " << word;
}

inline RankEnvironment environment_at(int64_t port, int64_t rank, int64_t world_size,
                                      const std::string& secret = kSecret) {
  RankEnvironment env{.rank = rank, .world_size = world_size, .local_rank = rank, .local_size = world_size};
  env.master_port = port;
  env.token = secret;
  return env;
}

// Rank 0 of `world_size`, in this process.
struct Hosted {
  explicit Hosted(int64_t ranks = 2) : world_size(ranks), listener(listening_socket(port)) { open(); }
  Hosted(int64_t ranks, int64_t at_port, int socket) : world_size(ranks), port(at_port), listener(socket) { open(); }
  void open() {
    RankEnvironment env = environment_at(port, 0, world_size);
    env.listen_fd = listener;
    rank_0 = make_store(env, deadline_s());
  }
  std::shared_ptr<Store> join(int64_t rank, const std::string& secret = kSecret, double timeout_s = deadline_s()) {
    return make_store(environment_at(port, rank, world_size, secret), timeout_s);
  }
  int64_t world_size, port = 0;
  int listener;
  std::shared_ptr<Store> rank_0;
};

inline void expect_it_works(Store& mine, Store& other) {
  mine.set("works", "yes");
  EXPECT_EQ(other.get("works", deadline_s()), "yes");
}

}  // namespace drivetrain::test
