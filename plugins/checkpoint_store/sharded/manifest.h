// manifest.json: which files a checkpoint is made of. A tag is complete when it has one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "digest.h"
#include "index.h"

namespace drivetrain::sharded {

// The two files that a rank wrote: what `write` returns and the manifest lists.
struct RankFiles {
  SaveIdentity identity;
  uint64_t data_bytes = 0, index_bytes = 0;
  Digest index_digest;

  Value to_value() const;
  static RankFiles from(const Value& value);  // Error(config)
};

struct Manifest {
  std::string tag;
  int64_t step = 0;
  double saved_at = 0;           // seconds since 1970, UTC
  std::vector<RankFiles> ranks;  // by rank
  Value facts;

  uint64_t file_bytes() const;  // of all files but the manifest itself
};

// A whole manifest that lies in the folder of another tag: somebody has copied a checkpoint, or renamed its folder.
class OtherTag : public Error {
 public:
  using Error::Error;
};

std::string manifest_text(const Manifest& manifest);
// Error(checkpoint) if the text is damaged or of a newer version; OtherTag if it is of another tag than `tag`.
Manifest read_manifest(const std::string& path, const std::string& text, const std::string& tag);

// Error(internal) if these are not the files of one save of `tag` by all of its ranks.
std::vector<RankFiles> files_of_parts(const std::string& tag, int64_t step, const std::vector<Value>& parts);

}  // namespace drivetrain::sharded
