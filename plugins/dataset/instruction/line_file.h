// A text file read by lines, in order and again at any place. It stays open, so that a file that is replaced meanwhile
// is read on as it was. Errors: Error(config) for a file that is not there, Error(io) for what cannot be read. Const
// calls from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace drivetrain::instruction {

class LineFile {
 public:
  explicit LineFile(const std::string& path);
  ~LineFile();
  LineFile(LineFile&& other) noexcept;
  LineFile(const LineFile&) = delete;

  struct Line {
    int64_t number = 0;  // from 1
    int64_t begin = 0;   // byte in the file
    std::string text;    // without its end
  };
  // Calls use(lines) for all lines in order, some megabytes of them at a time, without empty ones.
  template <class Use>
  void each_block(const Use& use) const {
    Reader reader{*this};
    for (std::vector<Line> lines; reader.next(lines);) use(lines);
  }
  // The line that begins there.
  std::string line(int64_t begin) const;
  // The number of the line that begins there, from 1. Reads all that stands before it.
  int64_t number(int64_t begin) const;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }

 private:
  struct Reader {
    const LineFile& file;
    int64_t at = 0, number = 0;
    std::string rest = {};  // the beginning of a line whose end was not read yet
    bool next(std::vector<Line>& lines);
    void take(std::string text, int64_t begin, std::vector<Line>& lines);
  };
  // Appends the bytes [at, at + count) or what there is of them up to the size at opening.
  void read(int64_t at, int64_t count, std::string& to) const;

  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

}  // namespace drivetrain::instruction
