// How many layers stages hold if a pipeline is to end in time: `Paths.filled` of solvers/replan/exact/bounds.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace replan {

using std::size_t;

// Numbers of each stage, counted from the last, of one family of paths (or width) after the other.
struct Table {
  std::vector<int64_t> values;
  size_t rows = 0, stages = 0;

  int64_t operator()(size_t row, size_t stage) const { return values[row * stages + stage]; }
};

// Paths to and fro between inner stages, as `Windows` of solvers/replan/exact/windows.py has them, by width.
struct Windows {
  int64_t one = 0;
  Table fixed, turns, stays, front, each;
};

// Paths that turn between inner stages and wait in front, as `Turns` of solvers/replan/exact/turns.py has them: a row
// for each width, turning once, then as many for as often as can be; stages 1…m − 1.
struct Turns {
  int64_t one = 0;
  Table fixed, waits, turns;
};

// The paths of one shape of pipeline. A path takes fixed + behind * suffix + own * layers.
class Filling {
 public:
  // `own` is 0 where layers are free.
  Filling(Table fixed, Table behind, Table own);

  void add(Windows windows);
  void turn(Turns turns);
  size_t stages() const { return fixed_.stages; }

  // The most layers that the last 1…P stages hold together; fewer of them where all hold less than `layers`.
  // `front`: the layers of the fullest stage from m on; 0: not known, and turns do not bind.
  std::vector<int64_t> filled(const std::vector<int64_t>& rooms, int64_t layers, int64_t limit, int64_t front) const;

  // The least price of a split and the layers of its stages from the last on; none costs `kNever` or more. The last
  // 0…P stages hold at least `fewest` and at most `most`; prices by [layers behind, own].
  std::pair<int64_t, std::vector<int64_t>> cheapest(const std::vector<int64_t>& rooms,
                                                    const std::vector<int64_t>& fewest,
                                                    const std::vector<int64_t>& most, const Table& prices,
                                                    int64_t limit) const;
  // The fewest layers of the last 0…P stages: by windows, where they hold at most `held`, and in all the last of these;
  // by turns, where they hold at least `fewest`, with `front` layers as above.
  std::vector<int64_t> fewest(const std::vector<int64_t>& held, int64_t limit) const;
  std::vector<int64_t> fewer(std::vector<int64_t> fewest, int64_t limit, int64_t front) const;
  static constexpr int64_t kNever = int64_t{1} << 60;

 private:
  struct Stages;
  void fill(const Stages& stages, size_t windows, std::vector<int64_t>& held) const;
  int64_t few(size_t family, size_t stage, int64_t limit, int64_t suffix) const;
  int64_t turned(size_t stage, const Stages& stages, const std::vector<int64_t>& held) const;
  int64_t most(size_t width, size_t stage, int64_t limit, const std::vector<int64_t>& held) const;

  const Table fixed_, behind_, own_;
  Windows windows_;
  Turns turns_;
};

}  // namespace replan
