// Ranks as threads of this process that share a store in memory: what suites of several ranks run on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/store.h>

namespace drivetrain::test {

// A store for the threads of one process.
std::shared_ptr<Store> make_memory_store();

// Runs `body` on `ranks` threads, each of which computes on one thread; what each threw, "" for nothing.
std::vector<std::string> on_threads(int64_t ranks, const std::function<void(int64_t rank)>& body);

void expect_no_errors(const std::vector<std::string>& errors);

}  // namespace drivetrain::test
