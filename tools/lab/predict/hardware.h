// A machine as data: what a rank computes with, what its memory gives, and what lies between ranks. A file of
// configs/hardware/, or what `drivetrain bench hardware` wrote. Reading is on the main thread; a value afterwards.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <drivetrain/options.h>

#include "internal.h"

namespace drivetrain {

// Matrix products. The rate of one, y [rows, out] = x [rows, in] W^T, is
//   peak * share / ((1 + half_rows / rows) (1 + half_width / out) (1 + half_width / in)),
// on a GPU less what its tiles and waves waste beyond the mean of such sizes (shape_advice.h).
struct ProductRates {
  double share = 0, half_rows = 0, half_width = 0;
  double experts_share = 0;  // of that rate, in products of experts; 0: all of it
};

// The scores and the weighted sum of attention: a share of the peak, by a kernel that keeps no scores in memory. The
// rate over `seq` positions is peak * share / (1 + half_seq / seq).
struct AttentionRates {
  double share = 0, half_seq = 0;
};

struct MemoryRates {
  double gb_per_s = 0, share = 0, gib = 0;
  // The share in passes with arithmetic, as norms and activation functions: a processor's take longer than their bytes.
  double arithmetic_share = 0;  // 0: as `share`
  double norm_share = 0;        // the share in the sum of squares of gradients; 0: as `share`
};

// What a rank's share of its host's memory gives the processors that update what lies there.
struct HostMemoryRates {
  double gb_per_s = 0, share = 0;  // 0: not known
};

// One direction. Of `network`: of a whole host, shared by the groups that cross its border at once.
struct LinkRates {
  double gb_per_s = 0, share = 0, latency_us = 0;
  double rank_latency_us = 0;  // a step's waiting for the slowest of n ranks, per rank
};

struct Overheads {
  double context_gib = 0;       // of the device, before the first tensor
  double communicator_gib = 0;  // per axis of more than one rank
  double allocator_share = 0;   // of what is allocated, on top of it
  double unit_us = 0;           // host work per visit of a unit that the device waits for
  double micro_batch_us = 0;    // and per micro-batch
  double step_us = 0;           // and per step
};

struct Hardware {
  std::string path;  // where it was read
  std::string name, about, device;
  std::vector<std::string> sources;
  Value from = Value::object();  // constant or group, as "products.share" -> where it is from; "*": all others
  Value peak_tflops;             // type -> dense peak of a rank
  int64_t multiprocessors = 0;   // of a GPU; 0: a processor, or not known
  ProductRates products;
  AttentionRates attention;
  MemoryRates memory;
  HostMemoryRates host_memory;
  LinkRates host_link, network, pcie;
  int64_t hosts = 1, ranks_per_host = 1;
  double overlap = 0;  // share of the time of a computation in which messages move beside it
  Overheads overheads;

  // FLOP/s. Error(config) with file, key and remedy where the file has no peak of this type.
  DRIVETRAIN_INTERNAL double peak(const std::string& dtype) const;
  double memory_rate() const { return memory.gb_per_s * 1e9 * memory.share; }  // bytes/s
  double pcie_rate() const { return pcie.gb_per_s * 1e9 * pcie.share; }
  // Error(config) with file, key and remedy where the file does not say it.
  DRIVETRAIN_INTERNAL double host_memory_rate() const;
  double pass_rate() const { return memory.gb_per_s * 1e9 * or_share(memory.arithmetic_share); }
  double norm_rate() const { return memory.gb_per_s * 1e9 * or_share(memory.norm_share); }

 private:
  double or_share(double share) const { return share > 0 ? share : memory.share; }
};

DRIVETRAIN_INTERNAL const OptionTable& hardware_table();

// `file` is a path or the name of a file of `folder` without ".json". Error(config): there is no such file (with the
// names that there are), and every problem of the file by key and place.
DRIVETRAIN_INTERNAL Hardware read_hardware(const std::string& file, const std::string& folder);

// As JSON, in the form that read_hardware reads.
DRIVETRAIN_INTERNAL Value hardware_value(const Hardware& hardware);

}  // namespace drivetrain
