// How many layers stages hold if a pipeline is to end in time: `Paths.filled` of solvers/replan/exact/bounds.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace replan {

using std::size_t;

// Numbers of each stage, counted from the last, of one family of paths (or width) after the other.
struct Table {
  std::vector<int64_t> values;
  size_t rows = 0, stages = 0;

  int64_t& at(size_t row, size_t stage) { return values[row * stages + stage]; }
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

// Times of a problem: of a layer, what the first and the last stage take besides (forward, backward), and of a message.
struct Model {
  int64_t layers = 0, forward = 0, backward = 0;
  std::pair<int64_t, int64_t> first, last;
  int64_t hop = 0;
};

// The fewest and the most layers that the last 0…P stages hold, and the most of each stage.
struct Held {
  std::vector<int64_t> fewest, most, rooms;
};

// The paths of one shape of pipeline, as solvers/replan/exact has them: `bounds.Paths`, and windows and turns once they
// are needed. A path takes fixed + behind * suffix + own * layers; `own` is 0 where layers are free.
class Filling {
 public:
  Filling(const Model& model, size_t depth, int64_t microbatches);

  size_t stages() const { return depth_; }

  // The most layers that the last 1…P stages hold together; fewer of them where all hold less than `layers`.
  // `front`: the layers of the fullest stage from m on; 0: not known, and turns do not bind.
  std::vector<int64_t> filled(const std::vector<int64_t>& rooms, int64_t layers, int64_t limit, int64_t front) const;

  // The most that all hold, whatever the fullest stage in front holds: `layers`, or less if proven so few.
  int64_t most_in_all(const std::vector<int64_t>& rooms, int64_t layers, int64_t limit) const;
  // What the last stages hold where all hold `layers`; nothing where they do not. The last answer is remembered, as the
  // same is asked at prices after prices.
  const std::optional<Held>& held(const std::vector<int64_t>& rooms, int64_t layers, int64_t limit) const;

  // The least price of a split and the layers of its stages from the first on; none costs `kNever` or more. Prices by
  // [layers behind, own].
  std::pair<int64_t, std::vector<int64_t>> cheapest(const std::vector<int64_t>& room, const Table& prices,
                                                    int64_t limit) const;
  static constexpr int64_t kNever = int64_t{1} << 60;

 private:
  struct Stages;
  const Windows& windows() const;
  const Turns& turns() const;
  bool turn() const { return model_.forward + model_.backward != 0 && 1 < microbatches_ && microbatches_ <= stages_(); }
  int64_t stages_() const { return static_cast<int64_t>(depth_); }
  // The most layers of the fullest stage in front with which all are held, at most so many: with what is held then.
  std::optional<std::pair<int64_t, std::vector<int64_t>>> next_filled(const std::vector<int64_t>& rooms, int64_t layers,
                                                                      int64_t limit, int64_t most) const;
  std::optional<Held> found_held(const std::vector<int64_t>& rooms, int64_t layers, int64_t limit) const;
  Held held_with(const std::vector<int64_t>& rooms, int64_t layers, int64_t limit, int64_t front,
                 const std::vector<int64_t>& filled) const;
  int64_t waiting(size_t row, size_t stage, int64_t limit, int64_t front, int64_t most) const;
  // The fewest layers of the last 0…P stages: by windows, where they hold at most `held`, and in all the last of these;
  // by turns, where they hold at least `fewest`, with `front` layers as above.
  std::vector<int64_t> fewest(const std::vector<int64_t>& held, int64_t limit) const;
  void fewer(std::vector<int64_t>& fewest, int64_t limit, int64_t front) const;
  void fill(const Stages& stages, size_t windows, std::vector<int64_t>& held) const;
  int64_t few(size_t family, size_t stage, int64_t limit, int64_t suffix, int64_t most) const;
  int64_t turned(size_t stage, const Stages& stages, const std::vector<int64_t>& held, int64_t most) const;
  int64_t most(size_t width, size_t stage, int64_t limit, const std::vector<int64_t>& held, int64_t most) const;

  const Model model_;
  const size_t depth_;
  const int64_t microbatches_;
  int64_t alone_ = 0;
  Table fixed_, behind_, own_;
  std::vector<int64_t> extra_, extras_;  // of each stage, and of the last 0…P together
  mutable std::optional<Windows> windows_;
  mutable std::optional<Turns> turns_;
  mutable std::vector<int64_t> rooms_;  // of the last answer, with its layers and limit
  mutable int64_t layers_ = -1, limit_ = 0;
  mutable std::optional<Held> held_;
};

}  // namespace replan
