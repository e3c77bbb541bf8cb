// A choice of the joint planner that changes in place: what is kept, gone and in use is mended where a change touches
// it. Number for number `State` of solvers/joint/state.py, which says what its lists hold.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "joint/given.h"

namespace joint {

using Gap = std::pair<int64_t, int64_t>;  // An op, and the stage that touches its output last before it is away.

// Something that is away: which op's output, over the gap behind which stage, behind which stage it leaves (that one or
// a later one), and which stage reads it next.
struct Away {
  int64_t op, touched, behind, read_at;
};

class State {
 public:
  // `away`: op, the stage that touches its output last, the one behind which it leaves.
  State(const Given& given, const std::vector<std::vector<int64_t>>& again,
        const std::vector<std::array<int64_t, 3>>& away, Shadow shadow);

  const Given& given;
  std::vector<std::vector<int64_t>> again, touched, made;
  std::vector<std::vector<std::pair<int64_t, int64_t>>> leaves, returns;  // (Stage that touches it last, op).
  std::vector<int64_t> running, held, ticks;
  int64_t total = 0;

  // What the choice owes beside its time, in ticks.
  int64_t owed() const;
  // The most in use by stage of what it touches; found anew here, once for all changes since it was asked.
  const std::vector<int64_t>& local();
  std::optional<int64_t> gap(int64_t i, int64_t a) const;
  std::optional<Gap> around(int64_t i, int64_t t) const;
  bool there(int64_t i, int64_t t) const;
  bool reads(int64_t t, int64_t j) const;
  // What is away over the gap behind a stage; nothing where the output is not.
  const Away* away(int64_t i, int64_t a) const;
  // All that is away: (stage that touches it last, op), in ascending order.
  std::vector<std::pair<int64_t, int64_t>> gone() const;

  void begin();
  void undo();
  void send(int64_t i, int64_t a) { send(i, a, a); }
  void send(int64_t i, int64_t a, int64_t behind);
  void keep(int64_t i, int64_t a);
  void put(int64_t t, int64_t i);
  void take(int64_t t, int64_t i);

 private:
  struct Done {
    bool put;
    int64_t stage, op;
  };
  void found_anew();
  Away forgotten(int64_t i, int64_t a);
  std::optional<int64_t> behind(int64_t i, int64_t a) const;
  int64_t leaving(const Away& one) const;
  void touch(int64_t j, int64_t t, bool is_made);
  void untouch(int64_t j, int64_t t, bool is_read);
  void lose(int64_t j, int64_t a, int64_t b, int64_t size);
  void mend(int64_t t);
  int64_t most(int64_t t);
  void hold(int64_t first, int64_t last, int64_t bytes);
  void seen(int64_t i, int64_t a, std::optional<int64_t> behind);
  void dirty(int64_t t);

  const Shadow shadow_;
  int64_t owed_ = 0;                                               // For what is away.
  std::vector<std::vector<std::pair<int64_t, int64_t>>> readers_;  // By stage, (op, how many ops of the stage read it).
  std::vector<std::vector<Away>> away_;                            // By op, in any order: one or two.
  std::vector<int64_t> plain_, local_;
  std::vector<int64_t> dirty_;
  std::vector<char> is_dirty_;
  std::vector<std::pair<int64_t, int64_t>> was_;  // (Stage, the most in use when the changes began).
  std::vector<char> is_old_;
  std::vector<Done> journal_;
  // The gaps that changed since then, the first first: behind which stage they left, if they did.
  std::vector<std::pair<Gap, std::optional<int64_t>>> seen_;
  std::vector<int64_t> last_;  // By op, which op of a stage reads it last; of one stage at a time.
};

}  // namespace joint
