// SIGINT and SIGTERM while a study runs: the first one lets the cell at hand finish, the second one stops it.
#pragma once

namespace drivetrain::study {

// For the whole process, until the object goes. Main thread; one object at a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  static int count();
  static int last();  // the signal's number; 0: none came
};

}  // namespace drivetrain::study
