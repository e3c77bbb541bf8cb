// Changes of one decision or a few in a state: what leaves is computed again instead, what stays leaves, and so on.
//
// Draw for draw `Moves` of solvers/joint/moves.py, which says what each is for.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "joint/given.h"
#include "joint/random.h"
#include "joint/state.h"

namespace joint {

// An op, the stage that touches its output last before the gap, and the stage that does so next.
struct Span {
  int64_t op, before, after;
};
enum class Fate { kNone, kStays, kLeaves, kAgain };
using Entry = std::pair<int64_t, int64_t>;  // A stage, and an op that leaves behind it or runs again in it.

class Moves {
 public:
  Moves(State& state, Random& source);

  void refresh();
  bool any();
  bool redecide(int64_t a, int64_t i);
  bool postpone(int64_t a, int64_t i);
  bool withdraw(int64_t t, int64_t i);
  const Entry& worth_sending();
  Fate fate(int64_t i, int64_t a, int64_t b) const;
  int64_t before(int64_t i, int64_t t) const;
  void remove(int64_t t, int64_t i);
  bool put(int64_t i, int64_t at);

  const std::vector<int64_t>& alike(int64_t i) const { return kinds_[kind_[i]]; }
  bool are_alike(int64_t i, int64_t j) const { return kind_[i] == kind_[j]; }
  const std::vector<Entry>& gone() const { return gone_; }
  const std::vector<Entry>& runs() const { return runs_; }
  const std::vector<int64_t>& sized() const { return sized_; }

 private:
  const Entry& worth_running();
  bool free();
  bool swapped_with(int64_t a, int64_t i);
  bool rerun_with(int64_t t, int64_t i);
  bool trade(int64_t t, int64_t i);
  std::optional<Span> other(int64_t i, Fate wanted);
  std::optional<Span> drawn(const std::vector<int64_t>& ops, Fate wanted, int64_t but);
  bool run_again(int64_t i, int64_t a, int64_t b);
  std::optional<int64_t> where(int64_t reader, int64_t stage) const;
  struct Needed {
    std::vector<int64_t> found, sooner;
  };
  Needed needed(int64_t i, int64_t at);
  int64_t silent(int64_t at) const;

  State& state_;
  const Given& given_;
  Random& source_;
  std::vector<int64_t> windows_, sized_;
  std::vector<std::vector<int64_t>> kinds_;  // Ops of one size and time each.
  std::vector<size_t> kind_;
  std::vector<Entry> gone_, runs_;
};

}  // namespace joint
