#include "step/program.h"

#include <map>
#include <tuple>

namespace drivetrain {
namespace {

Visit visit_of(int64_t unit, int64_t micro, Direction direction, Part part) {
  Visit v;
  v.unit = unit, v.micro = micro, v.direction = direction, v.part = part;
  return v;
}

}  // namespace

std::vector<Visit> expand(const Program& program, const std::vector<ChunkUnits>& chunks) {
  std::vector<Visit> visits;
  for (const Instr& instr : program) {
    const auto backward = [&](Part part) {
      const ChunkUnits& c = chunks.at(instr.chunk);
      for (int64_t u = c.last; u-- > c.first;) visits.push_back(visit_of(u, instr.micro, Direction::backward, part));
    };
    if (instr.op == Op::forward) {
      const ChunkUnits& c = chunks.at(instr.chunk);
      for (int64_t u = c.first; u < c.last; ++u)
        visits.push_back(visit_of(u, instr.micro, Direction::forward, Part::whole));
    } else if (instr.op == Op::backward) {
      backward(Part::whole);
    } else if (instr.op == Op::backward_input) {
      backward(Part::input);
    } else if (instr.op == Op::backward_weight) {
      backward(Part::weight);
    }
  }
  std::map<std::tuple<int64_t, Direction, bool>, Visit*> last;  // by unit, direction, whether it is an inputs' half
  for (Visit& v : visits) {
    Visit*& previous = last[{v.unit, v.direction, v.part == Part::input}];
    if (!previous) v.first = true;
    previous = &v;
  }
  for (auto& [key, v] : last) v->last = true;
  return visits;
}

}  // namespace drivetrain
