#include "replan/filling.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace replan {

namespace {

constexpr int64_t kMany = int64_t{1} << 40;  // More layers than any model has: no limit.
constexpr size_t kAlone = 2;                 // So many families know no suffix.
constexpr size_t kNarrow = 2;                // So many windows are looked at stage by stage.
constexpr int kFillings = 8;

int64_t floored(int64_t value, int64_t by) { return value / by - (value % by < 0 ? 1 : 0); }

}  // namespace

// What the stages can hold whatever is behind them; of all up to each the least that is of use, and the most.
struct Filling::Stages {
  std::vector<int64_t> alone, still, most;
  int64_t limit = 0, front = 0;
};

Filling::Filling(Table fixed, Table behind, Table own)
    : fixed_(std::move(fixed)), behind_(std::move(behind)), own_(std::move(own)) {}

void Filling::add(Windows windows) { windows_ = std::move(windows); }

void Filling::turn(Turns turns) { turns_ = std::move(turns); }

std::vector<int64_t> Filling::filled(const std::vector<int64_t>& rooms, int64_t layers, int64_t limit,
                                     int64_t front) const {
  const size_t depth = rooms.size();
  Stages stages{rooms, rooms, rooms, limit, front};
  int64_t before = layers - std::accumulate(rooms.begin(), rooms.end(), int64_t{0});
  for (size_t stage = 0; stage < depth; ++stage) {
    for (size_t family = 0; family < kAlone; ++family)
      stages.alone[stage] = std::min(stages.alone[stage], few(family, stage, limit, 0));
    stages.still[stage] = before += rooms[stage];
    stages.most[stage] = layers - static_cast<int64_t>(depth - stage) + 1;
  }
  std::vector<int64_t> held;
  held.reserve(depth);
  fill(stages, 0, held);
  for (int turn = 0; turn < kFillings && held.back() >= layers && windows_.one > 0; ++turn) {
    size_t first = depth;
    for (size_t stage = depth; stage-- > 0;) {
      int64_t fewest = kMany;
      for (size_t width = 0; width < windows_.fixed.rows; ++width)
        fewest = std::min(fewest, most(width, stage, limit, held));
      if (fewest < held[stage]) first = stage;
      stages.most[stage] = std::min(stages.most[stage], fewest);
    }
    if (first == depth) break;
    held.resize(first);
    fill(stages, std::min(kNarrow, windows_.fixed.rows), held);
  }
  return held;
}

// The most layers of a stage by one family, with `suffix` behind it.
int64_t Filling::few(size_t family, size_t stage, int64_t limit, int64_t suffix) const {
  const int64_t left = limit - fixed_(family, stage), own = own_(family, stage);
  if (own == 0) return left >= 0 ? kMany : -kMany;
  return floored(left - behind_(family, stage) * suffix, own);
}

// The most layers of the stages up to this one by one window, where `held` says what those before it hold.
int64_t Filling::most(size_t width, size_t stage, int64_t limit, const std::vector<int64_t>& held) const {
  const auto sum = [&held](int64_t count) { return count > 0 ? held[static_cast<size_t>(count) - 1] : 0; };
  const int64_t spare = floored(limit - windows_.fixed(width, stage), windows_.one);
  const int64_t turns = windows_.turns(width, stage) * sum(windows_.front(width, stage));
  const int64_t stays = windows_.stays(width, stage) * sum(static_cast<int64_t>(stage));
  return floored(spare + turns + stays, windows_.each(width, stage));
}

// The most layers of the stages up to this one by turns of all widths.
int64_t Filling::turned(size_t stage, const Stages& stages, const std::vector<int64_t>& held) const {
  int64_t most = kMany;
  if (stages.front == 0 || stage >= turns_.turns.stages) return most;
  for (size_t row = 0; row < turns_.turns.rows; ++row) {
    const size_t before = row % turns_.turns.stages;  // so many stages behind this one turn with it
    const int64_t turns = turns_.turns(row, stage);
    if (turns == 0) continue;
    const int64_t left = stages.limit - turns_.fixed(row, stage) - turns_.waits(row, stage) * stages.front;
    most = std::min(most, (before < stage ? held[stage - before - 1] : 0) + floored(left, turns * turns_.one));
  }
  return most;
}

// Behind the stages of which `held` is known; of the windows so many of the narrowest bind.
void Filling::fill(const Stages& stages, size_t windows, std::vector<int64_t>& held) const {
  const int64_t limit = stages.limit;
  for (size_t stage = held.size(); stage < stages.most.size(); ++stage) {
    const int64_t suffix = held.empty() ? 0 : held.back();
    int64_t more = stages.alone[stage];
    for (size_t family = kAlone; family < own_.rows; ++family) more = std::min(more, few(family, stage, limit, suffix));
    int64_t reached = std::min(suffix + more, stages.most[stage]);
    for (size_t width = 0; width < windows; ++width) reached = std::min(reached, most(width, stage, limit, held));
    reached = std::min(reached, turned(stage, stages, held));
    held.push_back(reached);
    if (reached < stages.still[stage]) return;
  }
}

std::pair<int64_t, std::vector<int64_t>> Filling::cheapest(const std::vector<int64_t>& rooms,
                                                           const std::vector<int64_t>& fewest,
                                                           const std::vector<int64_t>& most, const Table& prices,
                                                           int64_t limit) const {
  const size_t depth = rooms.size(), cells = prices.rows;
  std::vector<int64_t> least(cells, kNever), next;
  std::vector<std::vector<int64_t>> own(depth, std::vector<int64_t>(cells, 0));
  least[0] = 0;
  for (size_t stage = 0; stage < depth; ++stage) {
    next.assign(cells, kNever);
    const int64_t last = static_cast<int64_t>(cells) - 1;
    for (int64_t before = std::max(fewest[stage], int64_t{0}); before <= std::min(most[stage], last); ++before) {
      const int64_t known = least[static_cast<size_t>(before)];
      if (known >= kNever) continue;
      int64_t room =
          std::min({rooms[stage], std::min(most[stage + 1], last) - before, static_cast<int64_t>(prices.stages) - 1});
      for (size_t family = 0; family < own_.rows && room > 0; ++family)
        room = std::min(room, few(family, stage, limit, before));
      for (int64_t layers = 1; layers <= room; ++layers) {
        const auto held = static_cast<size_t>(before + layers);
        const int64_t price = known + prices(static_cast<size_t>(before), static_cast<size_t>(layers));
        if (price < kNever && price <= next[held]) {  // of equal ones that with fewer layers here
          next[held] = price;
          own[stage][held] = layers;
        }
      }
    }
    least.swap(next);
  }
  std::vector<int64_t> split;
  for (size_t stage = depth, held = cells - 1; least.back() < kNever && stage-- > 0;
       held -= static_cast<size_t>(split.back()))
    split.push_back(own[stage][held]);
  return {least.back(), split};
}

std::vector<int64_t> Filling::fewest(const std::vector<int64_t>& held, int64_t limit) const {
  std::vector<int64_t> fewest(held.size(), 0);
  fewest.back() = held.back();
  for (size_t stage = held.size() - 1; stage-- > 0;) {
    const int64_t know = fewest[stage + 1];
    for (size_t width = 0; width < windows_.fixed.rows && know != 0; ++width) {
      const int64_t turns = windows_.turns(width, stage);
      if (turns == 0) break;  // no wider one exists
      const int64_t spare = floored(limit - windows_.fixed(width, stage), windows_.one);
      const int64_t lacking = windows_.each(width, stage) * know - spare - windows_.stays(width, stage) * held[stage];
      int64_t& front = fewest[static_cast<size_t>(windows_.front(width, stage))];
      front = std::max(front, -floored(-lacking, turns));
    }
  }
  return fewest;
}

std::vector<int64_t> Filling::fewer(std::vector<int64_t> fewest, int64_t limit, int64_t front) const {
  for (size_t stage = turns_.turns.stages; stage-- > 0;)
    for (size_t row = 0; row < turns_.turns.rows; ++row) {
      const size_t before = row % turns_.turns.stages;
      const int64_t turns = turns_.turns(row, stage);
      if (turns == 0 || before > stage) continue;
      const int64_t left = limit - turns_.fixed(row, stage) - turns_.waits(row, stage) * front;
      int64_t& held = fewest[stage - before];
      held = std::max(held, fewest[stage + 1] - floored(left, turns * turns_.one));
    }
  return fewest;
}

}  // namespace replan
