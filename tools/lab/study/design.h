// Which cells a study has, and in which order their runs come. Pure functions of the study's file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "study/study_file.h"

namespace drivetrain::study {

struct Cell {
  std::string id;           // "zero=1,attention=flash"; the name of its folder
  std::vector<int> levels;  // by factor; -1: a row that does not name it
  std::vector<Change> changes;
  bool is_reference = false;
  bool is_noise = false;  // the reference again, as if it were another cell: an A/A comparison
};

struct Design {
  std::vector<Cell> cells;    // the reference first, the noise cell, if there is one, last
  int64_t left_out = 0;       // by constraints
  std::string aliasing = {};  // of a fraction: what it cannot tell apart
};

// Throws Error(config): no cell is left, two cells are one, no such fraction, a cell has one key twice.
Design design_of(const StudyFile& study);

// The levels of 1 of `fraction` cells of the full cross of factors with so many levels each, chosen by defining words
// modulo its prime factors, with the largest resolution that there is. Throws Error(config) if main effects would be
// confounded with one another.
struct Fraction {
  std::vector<std::vector<int>> cells;
  int resolution = 0;
};
Fraction fraction_of(const std::vector<int>& levels, int64_t fraction);

// What a cell's id has instead of characters that the name of a folder should not have.
std::string file_name(std::string text);

// One run of one cell in one block.
struct Turn {
  int64_t block = 0;  // the repeat, from 0
  size_t cell = 0;
};
// Every block has every cell once, in an order of its own. The same seed gives the same order everywhere.
std::vector<Turn> order_of(size_t cells, int64_t blocks, uint64_t seed);

}  // namespace drivetrain::study
