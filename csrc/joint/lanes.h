// How long a choice of the joint planner takes: three lanes (compute, out, in) and the host, stage by stage, in one
// pass.
//
// Number for number `Lanes` of solvers/joint/lanes.py, which says when what is away comes back, and what a pass is.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "joint/given.h"
#include "joint/state.h"

namespace joint {

constexpr int64_t kFault = int64_t{1} << 62;  // How long what is not valid takes: longer than any step.

class Lanes {
 public:
  explicit Lanes(State& state);

  // How long the state takes; `kFault` where memory does not fit, or where it takes more than `most`.
  int64_t took(int64_t most = kFault);
  // The last pass was of a state that stays: its times are those that the next returns are issued by.
  void kept();
  // What comes back from which stage on, in the order of issue.
  const std::vector<std::pair<int64_t, Away>>& issued() const { return issued_; }

 private:
  int64_t host() const;
  void find_talking();
  void issue();
  std::optional<int64_t> pass(int64_t spare, int64_t until, bool is_returning);
  int64_t ran(int64_t stage, int64_t start);
  void send(int64_t stage, int64_t now);

  State& state_;
  const Given& given_;
  std::vector<int64_t> start_, times_, room_;
  std::vector<std::pair<int64_t, Away>> issued_;
  std::vector<std::vector<Away>> back_at_;  // By stage, what is issued then: what is read last stands first.
  int64_t quiet_ = 0, luck_ = 0;
  std::vector<char> talking_;  // By stage, whether communication has the link to itself; empty where none has.
  // Of one pass: when lanes and the host are free, when what op i made was gone, when what a stage reads is there, what
  // is leaving.
  int64_t out_free_ = 0, in_free_ = 0, host_free_ = 0;
  std::vector<int64_t> gone_, due_, now_;
  std::vector<std::pair<int64_t, int64_t>> leaving_;  // Ends and bytes, in order.
};

}  // namespace joint
