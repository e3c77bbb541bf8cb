// One file: the loads that stages can hold, and the bounds on them, which share their partial splits.
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
constexpr int64_t kAbsent = -(int64_t{1} << 60);  // The fixed part of a path that does not exist.
constexpr int64_t kWidths[] = {2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56};

int64_t floored(int64_t value, int64_t by) { return value / by - (value % by < 0 ? 1 : 0); }

Table empty(size_t rows, size_t stages) { return {std::vector<int64_t>(rows * stages, 0), rows, stages}; }

}  // namespace

// What the stages can hold whatever is behind them; of all up to each the least that is of use, and the most.
struct Filling::Stages {
  std::vector<int64_t> alone, still, most;
  int64_t limit = 0, front = 0;
};

// Families (A), (C), (B) and twice (D), as `PathTable` has them.
Filling::Filling(const Model& model, size_t depth, int64_t microbatches)
    : model_(model), depth_(depth), microbatches_(microbatches), extra_(depth, 0), extras_(depth + 1, 0) {
  fixed_ = behind_ = own_ = empty(5, depth);
  const auto stages = static_cast<int64_t>(depth);
  const int64_t one = model.forward + model.backward, others = microbatches - 1;
  const int64_t first = model.first.first + model.first.second, last = model.last.first + model.last.second;
  alone_ = model.layers * one + first + last + 2 * (stages - 1) * model.hop;
  for (int64_t k = 1; k <= stages; ++k) {
    const auto at = static_cast<size_t>(k - 1);
    const int64_t forward = (k == stages ? model.first.first : 0) + (k == 1 ? model.last.first : 0);
    const int64_t extra = extra_[at] = (k == stages ? first : 0) + (k == 1 ? last : 0);
    const int64_t backward = extra - forward, steady = std::max(microbatches - k, int64_t{0});
    extras_[at + 1] = extras_[at] + extra;
    fixed_.at(0, at) = alone_ + others * backward + steady * forward;
    own_.at(0, at) = others * model.backward + steady * model.forward;
    fixed_.at(1, at) = alone_ + others * forward + steady * backward;
    own_.at(1, at) = others * model.forward + steady * model.backward;
    if (others != 0) {
      fixed_.at(2, at) = model.layers * one + 2 * (stages - k) * model.hop + microbatches * extra;
      fixed_.at(2, at) += k < stages ? first : 0;
      behind_.at(2, at) = -one;
      own_.at(2, at) = one * others;
    }
    if (k > others) continue;
    const int64_t around = extra + 2 * (k - 1) * model.hop + (k > 1 ? last : 0);
    for (const size_t family : {size_t{3}, size_t{4}}) {
      const int64_t sweeps = family == 3 ? 1 : others / k, stay = others - sweeps * k;
      fixed_.at(family, at) = alone_ + sweeps * around + stay * extra;
      behind_.at(family, at) = one * sweeps;
      own_.at(family, at) = one * (stay + sweeps);
    }
  }
}

const Windows& Filling::windows() const {
  if (windows_) return *windows_;
  windows_.emplace();
  const int64_t one = model_.forward + model_.backward;
  const auto rows = static_cast<size_t>(
      std::count_if(std::begin(kWidths), std::end(kWidths), [this](int64_t width) { return width < stages_(); }));
  if (one == 0 || model_.hop == 0 || rows < kNarrow)
    return *windows_;  // a window takes no longer than its longest stage
  Table fixed = empty(rows, depth_), turns = fixed, stays = fixed, front = fixed, each = fixed;
  bool any = false;
  for (size_t row = 0; row < rows; ++row)
    for (int64_t k = 1; k <= stages_(); ++k) {
      const int64_t width = kWidths[row], left = microbatches_ - 1 - k;  // when the last sweep begins
      const auto at = static_cast<size_t>(k - 1), begin = static_cast<size_t>(std::max(k - width, int64_t{0}));
      const bool exists = width < k && left >= width;
      const int64_t often = exists ? left / width : 0, stay = exists ? left - often * width : 0;
      const int64_t around = extras_[at + 1] - extras_[begin] + 2 * (width - 1) * model_.hop;
      fixed.at(row, at) =
          exists ? alone_ + often * around + stay * extra_[at] + extras_[at + 1] + 2 * (k - 1) * model_.hop : kAbsent;
      turns.at(row, at) = often;
      stays.at(row, at) = stay;
      front.at(row, at) = static_cast<int64_t>(begin);
      each.at(row, at) = often + stay + 1;
      any = any || exists;
    }
  if (any) windows_ = Windows{one, fixed, turns, stays, front, each};
  return *windows_;
}

const Turns& Filling::turns() const {
  if (turns_) return *turns_;
  turns_.emplace();
  if (!turn()) return *turns_;
  const auto widths = static_cast<size_t>(microbatches_ - 1);
  Table fixed = empty(2 * widths, widths), waits = fixed, turns = fixed;
  for (size_t row = 0; row < 2 * widths; ++row)
    for (size_t at = row % widths; at < widths; ++at) {
      const auto width = static_cast<int64_t>(row % widths) + 1, k = static_cast<int64_t>(at) + 1;
      const int64_t often = row < widths ? 1 : 1 + (microbatches_ - 1 - k) / width;
      if (row >= widths && often == 1) continue;
      const int64_t around = extras_[at + 1] - extras_[static_cast<size_t>(k - width)] + 2 * (width - 1) * model_.hop;
      fixed.at(row, at) = alone_ + often * around;
      waits.at(row, at) = std::max(microbatches_ - 1 - often * width, int64_t{0}) * model_.backward;
      turns.at(row, at) = often;
    }
  turns_ = Turns{model_.forward + model_.backward, fixed, waits, turns};
  return *turns_;
}

std::vector<int64_t> Filling::filled(const std::vector<int64_t>& rooms, int64_t layers, int64_t limit,
                                     int64_t front) const {
  const size_t depth = rooms.size();
  Stages stages{rooms, rooms, rooms, limit, front};
  int64_t before = layers - std::accumulate(rooms.begin(), rooms.end(), int64_t{0});
  for (size_t stage = 0; stage < depth; ++stage) {
    for (size_t family = 0; family < kAlone; ++family)
      stages.alone[stage] = few(family, stage, limit, 0, stages.alone[stage]);
    stages.still[stage] = before += rooms[stage];
    stages.most[stage] = layers - static_cast<int64_t>(depth - stage) + 1;
  }
  std::vector<int64_t> held;
  held.reserve(depth);
  fill(stages, 0, held);
  for (int turn = 0; turn < kFillings && held.back() >= layers && windows().one > 0; ++turn) {
    for (size_t width = 0; width < windows_->fixed.rows; ++width)
      for (size_t stage = static_cast<size_t>(kWidths[width]); stage < depth; ++stage)  // none further back exists
        stages.most[stage] = most(width, stage, limit, held, stages.most[stage]);
    size_t first = 0;
    while (first < depth && stages.most[first] >= held[first]) ++first;
    if (first == depth) break;
    held.resize(first);
    fill(stages, std::min(kNarrow, windows_->fixed.rows), held);
  }
  return held;
}

// The most layers of a stage by one family, with `suffix` behind it, and at most so many. Here and below nothing is
// divided that does not bind.
int64_t Filling::few(size_t family, size_t stage, int64_t limit, int64_t suffix, int64_t most) const {
  const int64_t left = limit - fixed_(family, stage), own = own_(family, stage);
  if (own == 0) return left >= 0 ? std::min(most, kMany) : -kMany;
  const int64_t spare = left - behind_(family, stage) * suffix;
  return spare < most * own ? floored(spare, own) : most;
}

// The most layers of the stages up to this one by one window, where `held` says what those before it hold.
int64_t Filling::most(size_t width, size_t stage, int64_t limit, const std::vector<int64_t>& held, int64_t most) const {
  const auto sum = [&held](int64_t count) { return count > 0 ? held[static_cast<size_t>(count) - 1] : 0; };
  const int64_t left = limit - windows_->fixed(width, stage), each = windows_->each(width, stage);
  const int64_t behind = windows_->turns(width, stage) * sum(windows_->front(width, stage)) +
                         windows_->stays(width, stage) * sum(static_cast<int64_t>(stage));
  if (left >= (most * each - behind) * windows_->one) return most;
  return floored(floored(left, windows_->one) + behind, each);
}

// The most layers of the stages that turn, with `front` layers at the fullest of those in front.
int64_t Filling::waiting(size_t row, size_t stage, int64_t limit, int64_t front, int64_t most) const {
  const int64_t left = limit - turns_->fixed(row, stage) - turns_->waits(row, stage) * front;
  const int64_t each = turns_->turns(row, stage) * turns_->one;
  return left < most * each ? floored(left, each) : most;
}

// The most layers of the stages up to this one by turns of all widths.
int64_t Filling::turned(size_t stage, const Stages& stages, const std::vector<int64_t>& held, int64_t most) const {
  if (stages.front == 0 || stage >= turns().turns.stages) return most;
  for (size_t row = 0; row < turns_->turns.rows; ++row) {
    const size_t before = row % turns_->turns.stages;  // so many stages behind this one turn with it
    if (turns_->turns(row, stage) == 0) continue;
    const int64_t behind = before < stage ? held[stage - before - 1] : 0;
    most = behind + waiting(row, stage, stages.limit, stages.front, most - behind);
  }
  return most;
}

// Behind the stages of which `held` is known; of the windows so many of the narrowest bind.
void Filling::fill(const Stages& stages, size_t windows, std::vector<int64_t>& held) const {
  const int64_t limit = stages.limit;
  for (size_t stage = held.size(); stage < stages.most.size(); ++stage) {
    const int64_t suffix = held.empty() ? 0 : held.back();
    int64_t more = stages.alone[stage];
    for (size_t family = kAlone; family < own_.rows; ++family) more = few(family, stage, limit, suffix, more);
    int64_t reached = std::min(suffix + more, stages.most[stage]);
    if (reached > -kMany / 2) {  // products with what is too little by far do not fit
      for (size_t width = 0; width < windows; ++width) reached = most(width, stage, limit, held, reached);
      reached = turned(stage, stages, held, reached);
    }
    held.push_back(reached);
    if (reached < stages.still[stage]) return;
  }
}

std::pair<int64_t, std::vector<int64_t>> Filling::cheapest(const std::vector<int64_t>& room, const Table& prices,
                                                           int64_t limit) const {
  const size_t depth = room.size(), cells = prices.rows;
  const std::optional<Held>& bounds = held(room, static_cast<int64_t>(cells) - 1, limit);
  if (!bounds) return {kNever, {}};
  const auto& [fewest, most, rooms] = *bounds;
  std::vector<int64_t> least(cells, kNever), next(cells), own(depth * cells);  // `own` is read where `next` was set
  const int64_t last = static_cast<int64_t>(cells) - 1, widest = static_cast<int64_t>(prices.stages) - 1;
  least[0] = 0;
  for (size_t stage = 0; stage < depth; ++stage) {
    std::fill(next.begin(), next.end(), kNever);
    int64_t* const owns = &own[stage * cells];
    for (int64_t before = std::max(fewest[stage], int64_t{0}); before <= std::min(most[stage], last); ++before) {
      const int64_t known = least[static_cast<size_t>(before)];
      if (known >= kNever) continue;
      int64_t room = std::min({rooms[stage], std::min(most[stage + 1], last) - before, widest});
      for (size_t family = 0; family < own_.rows && room > 0; ++family) room = few(family, stage, limit, before, room);
      const int64_t* const row = &prices.values[static_cast<size_t>(before) * prices.stages];
      for (int64_t layers = 1; layers <= room; ++layers) {
        const auto held = static_cast<size_t>(before + layers);
        const int64_t price = known + row[layers];
        if (price < kNever && price <= next[held]) {  // of equal ones that with fewer layers here
          next[held] = price;
          owns[held] = layers;
        }
      }
    }
    least.swap(next);
  }
  std::vector<int64_t> split;
  for (size_t stage = depth, held = cells - 1; least.back() < kNever && stage-- > 0;
       held -= static_cast<size_t>(split.back()))
    split.push_back(own[stage * cells + held]);
  return {least.back(), split};
}

std::vector<int64_t> Filling::fewest(const std::vector<int64_t>& held, int64_t limit) const {
  std::vector<int64_t> fewest(held.size(), 0);
  fewest.back() = held.back();
  for (size_t stage = held.size() - 1; stage-- > 0;) {
    const int64_t know = fewest[stage + 1];
    for (size_t width = 0; width < windows_->fixed.rows && know != 0; ++width) {
      const int64_t turns = windows_->turns(width, stage);
      if (turns == 0) break;  // no wider one exists
      const int64_t left = limit - windows_->fixed(width, stage);
      const int64_t known = windows_->each(width, stage) * know - windows_->stays(width, stage) * held[stage];
      int64_t& front = fewest[static_cast<size_t>(windows_->front(width, stage))];
      if (left >= (known - turns * front) * windows_->one) continue;
      front = -floored(floored(left, windows_->one) - known, turns);
    }
  }
  return fewest;
}

void Filling::fewer(std::vector<int64_t>& fewest, int64_t limit, int64_t front) const {
  for (size_t stage = turns().turns.stages; stage-- > 0;)
    for (size_t row = 0; row < turns_->turns.rows; ++row) {
      const size_t before = row % turns_->turns.stages;
      if (before > stage || turns_->turns(row, stage) == 0) continue;
      int64_t& held = fewest[stage - before];
      held = fewest[stage + 1] - waiting(row, stage, limit, front, fewest[stage + 1] - held);
    }
}

std::optional<std::pair<int64_t, std::vector<int64_t>>> Filling::next_filled(const std::vector<int64_t>& rooms,
                                                                             int64_t layers, int64_t limit,
                                                                             int64_t most) const {
  const auto front = rooms.begin() + (microbatches_ - 1);
  for (most = std::min({most, *std::max_element(front, rooms.end()), layers}); most > 0; --most) {
    std::vector<int64_t> fewer = rooms;
    for (auto room = fewer.begin() + (microbatches_ - 1); room != fewer.end(); ++room) *room = std::min(*room, most);
    if (std::accumulate(fewer.begin(), fewer.end(), int64_t{0}) < layers) break;
    std::vector<int64_t> held = filled(fewer, layers, limit, most);
    if (held.back() >= layers) return {{most, std::move(held)}};
  }
  return std::nullopt;
}

int64_t Filling::most_in_all(const std::vector<int64_t>& rooms, int64_t layers, int64_t limit) const {
  const int64_t held = filled(rooms, layers, limit, 0).back();
  return held >= layers && turn() && !next_filled(rooms, layers, limit, layers) ? layers - 1 : held;
}

const std::optional<Held>& Filling::held(const std::vector<int64_t>& rooms, int64_t layers, int64_t limit) const {
  if (layers_ != layers || limit_ != limit || rooms_ != rooms) {
    held_ = found_held(rooms, layers, limit);
    rooms_ = rooms;
    layers_ = layers;
    limit_ = limit;
  }
  return held_;
}

std::optional<Held> Filling::found_held(const std::vector<int64_t>& rooms, int64_t layers, int64_t limit) const {
  std::vector<int64_t> all = filled(rooms, layers, limit, 0);
  if (all.back() < layers) return std::nullopt;
  if (!turn()) {
    all.insert(all.begin(), 0);
    std::vector<int64_t> few(all.size());
    std::iota(few.begin(), few.end(), 0);
    return Held{windows().one > 0 ? fewest(all, limit) : few, all, rooms};
  }
  std::optional<Held> found;
  auto next = next_filled(rooms, layers, limit, layers);
  for (; next; next = next_filled(rooms, layers, limit, next->first - 1)) {
    Held one = held_with(rooms, layers, limit, next->first, next->second);
    if (!found) {
      found = std::move(one);
      continue;
    }
    const auto take = [](std::vector<int64_t>& into, const std::vector<int64_t>& from, const auto& better) {
      for (size_t k = 0; k < into.size(); ++k) into[k] = better(into[k], from[k]);
    };
    take(found->fewest, one.fewest, [](int64_t a, int64_t b) { return std::min(a, b); });
    take(found->most, one.most, [](int64_t a, int64_t b) { return std::max(a, b); });
    take(found->rooms, one.rooms, [](int64_t a, int64_t b) { return std::max(a, b); });
  }
  return found;
}

// With `front` layers at the fullest of the stages in front, and what is filled then.
Held Filling::held_with(const std::vector<int64_t>& rooms, int64_t layers, int64_t limit, int64_t front,
                        const std::vector<int64_t>& filled) const {
  const Turns& some = turns();
  Held held{std::vector<int64_t>(depth_ + 1, 0), filled, rooms};
  held.most.insert(held.most.begin(), 0);
  for (size_t stage = 0; stage < depth_; ++stage) {
    int64_t most = stage < some.turns.stages ? held.rooms[stage] : front;
    for (size_t row = 0; stage < some.turns.stages && row <= some.turns.stages; row += some.turns.stages)
      if (some.turns(row, stage) != 0) most = waiting(row, stage, limit, front, most);
    held.rooms[stage] = std::min(held.rooms[stage], most);
  }
  int64_t still = layers;
  for (size_t stage = depth_ + 1; stage-- > 0;) {
    held.fewest[stage] = std::max(static_cast<int64_t>(stage), still);
    if (stage > 0) still -= held.rooms[stage - 1];
  }
  if (windows().one > 0) {
    const std::vector<int64_t> by_windows = fewest(held.most, limit);
    for (size_t k = 0; k < by_windows.size(); ++k) held.fewest[k] = std::max(held.fewest[k], by_windows[k]);
  }
  fewer(held.fewest, limit, front);
  return held;
}

}  // namespace replan
