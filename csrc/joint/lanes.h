// How long a choice of the joint planner takes: three lanes (compute, out, in), stage by stage, in one pass.
//
// The same as `Lanes` of solvers/joint/lanes.py, which stands in where this was not built, number for number. A choice
// changes between two passes, so its lists are read anew each time, straight from Python's own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

namespace joint {

// Something that is away: which op's output, behind which stage it leaves, and which stage reads it next.
struct Away {
  int64_t op, out_after, read_at;
};

// What the search changes in place (solvers/joint/state.py says what these lists hold).
struct Choice {
  const pybind11::list& ticks;
  const pybind11::list& leaves;
  const pybind11::list& returns;
  const pybind11::dict& away;
  std::vector<char> talking;  // By stage, whether communication has the link to itself; empty where none has.
};

class Lanes {
 public:
  Lanes(std::vector<int64_t> size, std::vector<int64_t> out_time, std::vector<int64_t> in_time,
        std::vector<int64_t> start);

  // The stages up to `until`, as if nothing came back; nothing where they wait for more than `spare`.
  std::optional<int64_t> forward(const Choice& choice, const std::vector<int64_t>& room, int64_t spare, int64_t until);
  // All stages; `room` is taken by what comes back sooner than it is read.
  std::optional<int64_t> all(const Choice& choice, std::vector<int64_t> room, int64_t spare);
  // The last pass was of a choice that stays: its times are those that the next returns are issued by. Before which
  // stage lies one in `early` of the stages that something returns from, 0 where nothing does.
  int64_t keep(size_t early);
  // When each stage started, by the last pass of all stages that came to its end.
  const std::vector<int64_t>& times() const { return times_; }
  // What comes back from which stage on, in the order of issue.
  const std::vector<std::pair<int64_t, Away>>& issued() const { return issued_; }

 private:
  void issue(const Choice& choice, std::vector<int64_t>& room);
  std::optional<int64_t> pass(const Choice& choice, const std::vector<int64_t>& room, int64_t spare, int64_t until,
                              bool returning);
  void send(const Choice& choice, int64_t stage, int64_t now);

  const std::vector<int64_t> size_, out_time_, in_time_;
  std::vector<int64_t> start_, times_;
  std::vector<std::pair<int64_t, Away>> issued_;
  std::vector<std::vector<Away>> back_at_;  // By stage, what is issued then: what is read last stands first.
  // Of one pass: when lanes are free, when what op i made was gone, when what a stage reads is there, what is leaving.
  int64_t out_free_ = 0, in_free_ = 0;
  std::vector<int64_t> gone_, due_;
  std::vector<std::pair<int64_t, int64_t>> leaving_;  // Ends and bytes, in order.
};

}  // namespace joint
