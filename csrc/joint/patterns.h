// Changes of many decisions at once: what is done about an output is done about others like it, in other layers.
//
// Draw for draw `Patterns` of solvers/joint/patterns.py, which says what each is for.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "joint/moves.h"

namespace joint {

class Patterns {
 public:
  Patterns(Moves& moves, State& state, Random& source);

  bool any();

 private:
  bool stay(int64_t t, int64_t i);
  bool sent(int64_t but, int64_t stage, int64_t missing);
  bool copied();
  bool beside();
  bool wide();
  std::optional<std::pair<int64_t, int64_t>> decided(int64_t i) const;
  bool imitate(int64_t i, int64_t a, int64_t b, int64_t other);
  std::optional<int64_t> served(int64_t j, int64_t reader) const;
  std::optional<int64_t> released(int64_t j, int64_t reader);
  bool run(int64_t j, int64_t reader, int64_t at);
  // An op alike, so many places further; nothing where there is none.
  std::optional<int64_t> further(int64_t i, int64_t places) const;

  Moves& moves_;
  State& state_;
  const Given& given_;
  Random& source_;
};

}  // namespace joint
