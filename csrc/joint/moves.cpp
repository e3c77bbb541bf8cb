// One file: changes of decisions, which share what they draw and put.
#include "joint/moves.h"

#include <algorithm>
#include <map>

namespace joint {

namespace {

// The constants of moves.py, by their names there.
constexpr size_t kNear = 6, kDepth = 12, kClose = 3;
constexpr int kTries = 8;
const std::vector<double> kFreed = {0.2, 0.5, 0.8, 1.0, 1.0, 1.2};
const std::vector<int64_t> kWide = {10, 30, 100, 1000}, kReach = {2, 8, 30, 100}, kSigns = {-1, 1};
constexpr double kWaits = 0.78;

// Whether a · b < c · d, as whole numbers of any size.
bool is_less(int64_t a, int64_t b, int64_t c, int64_t d) {
  return static_cast<__int128>(a) * b < static_cast<__int128>(c) * d;
}

size_t back(size_t place, size_t by) { return place > by ? place - by : 0; }

}  // namespace

Moves::Moves(State& state, Random& source) : state_(state), given_(state.given), source_(source) {
  std::map<std::pair<int64_t, int64_t>, size_t> known;
  for (int64_t i = 0; i < given_.count(); ++i) {
    if (i >= given_.replays_from && given_.comm[i] && given_.time[i] != 0) windows_.push_back(i);
    if (given_.size[i] != 0) sized_.push_back(i);
    const auto [found, is_new] = known.try_emplace({given_.size[i], given_.time[i]}, kinds_.size());
    if (is_new) kinds_.emplace_back();
    kinds_[found->second].push_back(i);
    kind_.push_back(found->second);
  }
  refresh();
}

void Moves::refresh() {
  gone_ = state_.gone();
  runs_.clear();
  for (const int64_t t : state_.running)
    for (const int64_t i : state_.again[t]) runs_.emplace_back(t, i);
}

bool Moves::any() {
  const double roll = source_.random();
  if (!gone_.empty() && roll < 0.25) {
    const auto [a, i] = worth_running();
    return redecide(a, i);
  }
  if (!runs_.empty() && roll < 0.5) {
    const auto [t, i] = worth_sending();
    return withdraw(t, i);
  }
  if (!runs_.empty() && roll < 0.65) {
    const auto [t, i] = worth_sending();
    return trade(t, i);
  }
  if (roll < 0.7) return free();
  if (!gone_.empty() && roll < kWaits) {
    const auto [a, i] = source_.choice(gone_);
    return postpone(a, i);
  }
  if (!gone_.empty() && (runs_.empty() || roll < 0.9)) {
    const auto [a, i] = worth_running();
    return swapped_with(a, i);
  }
  if (runs_.empty()) return false;
  const auto [t, i] = worth_sending();
  return rerun_with(t, i);
}

const Entry& Moves::worth_running() {
  const Entry& one = source_.choice(gone_);
  const Entry& other = source_.choice(gone_);
  const auto &time = given_.time, &link = given_.out_time;
  return is_less(time[other.second], link[one.second], time[one.second], link[other.second]) ? other : one;
}

const Entry& Moves::worth_sending() {
  const Entry& one = source_.choice(runs_);
  const Entry& other = source_.choice(runs_);
  return given_.time[other.second] > given_.time[one.second] ? other : one;
}

// -- one decision

bool Moves::redecide(int64_t a, int64_t i) {
  const int64_t b = state_.away(i, a)->read_at;
  if (source_.random() < 0.25) {
    state_.keep(i, a);
    return true;
  }
  return run_again(i, a, b);
}

bool Moves::withdraw(int64_t t, int64_t i) {
  const int64_t a = before(i, t);
  const double roll = source_.random();
  remove(t, i);
  if (roll < 0.25 && !windows_.empty() && given_.hideable[i]) {
    const auto b = state_.gap(i, a);
    return b && run_again(i, a, *b);
  }
  if (roll < 0.85) state_.send(i, a);
  return true;
}

bool Moves::postpone(int64_t a, int64_t i) {
  const Away was = *state_.away(i, a);
  const double roll = source_.random();
  int64_t leaves = a;
  if (roll >= 0.5) {
    const int64_t sign = source_.choice(kSigns);
    leaves = was.behind + sign * source_.between(1, source_.choice(kReach));
  } else if (roll >= 0.2) {
    const auto [first, other] = source_.choice(gone_);
    leaves = state_.away(other, first)->behind;
  }
  if (std::max(a, std::min(leaves, was.read_at - 2)) == was.behind) return false;
  state_.keep(i, a);
  state_.send(i, a, leaves);
  return true;
}

bool Moves::free() {
  const auto held = drawn(sized_, Fate::kStays, -1);
  if (!held) return false;
  if (source_.random() < 0.5) {
    state_.send(held->op, held->before);
    return true;
  }
  return run_again(held->op, held->before, held->after);
}

// -- several at once

bool Moves::swapped_with(int64_t a, int64_t i) {
  const int64_t b = state_.away(i, a)->read_at;
  std::optional<Span> instead;
  if (source_.random() < 0.3) {
    state_.keep(i, a);
    instead = other(i, Fate::kStays);
  } else {
    if (!run_again(i, a, b)) return false;
    instead = other(i, Fate::kAgain);
    if (instead) remove(instead->after, instead->op);
  }
  if (instead) state_.send(instead->op, instead->before);
  return instead.has_value();
}

bool Moves::rerun_with(int64_t t, int64_t i) {
  const int64_t a = before(i, t);
  remove(t, i);
  const Fate wanted = source_.random() < 0.3 ? Fate::kStays : Fate::kLeaves;
  if (wanted == Fate::kLeaves) state_.send(i, a);
  const auto instead = other(i, wanted);
  return instead && run_again(instead->op, instead->before, instead->after);
}

bool Moves::trade(int64_t t, int64_t i) {
  const int64_t a = before(i, t);
  int64_t saved = state_.ticks[t];
  remove(t, i);
  saved -= state_.ticks[t];
  state_.send(i, a);
  if (!state_.away(i, a)) return false;
  const int64_t took = std::max<int64_t>(1, given_.out_time[i]);
  const auto width = static_cast<size_t>(source_.choice(kWide));
  const size_t place = lower(gone_, Entry{a, i});
  std::vector<Entry> near;
  for (size_t k = back(place, width); k < std::min(gone_.size(), place + width); ++k) {
    const int64_t j = gone_[k].second;
    if (given_.out_time[j] < took && is_less(given_.time[j], took, saved, given_.out_time[j])) near.push_back(gone_[k]);
  }
  if (source_.random() < 0.5) {
    source_.shuffle(near);
  } else {
    std::vector<std::pair<double, size_t>> order;
    for (const Entry& one : near) {
      const double worth =
          static_cast<double>(given_.time[one.second]) / static_cast<double>(given_.out_time[one.second]);
      order.emplace_back(worth * source_.uniform(0.7, 1.4), order.size());
    }
    std::sort(order.begin(), order.end());
    std::vector<Entry> sorted;
    for (const auto& [worth, number] : order) sorted.push_back(near[number]);
    near = std::move(sorted);
  }
  double freed = static_cast<double>(took) * source_.choice(kFreed);
  for (const auto& [first, j] : near) {
    if (freed <= 0) break;
    const Away* one = state_.away(j, first);
    if (one && run_again(j, first, one->read_at)) freed -= static_cast<double>(given_.out_time[j]);
  }
  return true;
}

std::optional<Span> Moves::other(int64_t i, Fate wanted) {
  const std::vector<int64_t>* others = &alike(i);
  if (others->size() < 2 || source_.random() < 0.2) others = &sized_;
  if (source_.random() >= 0.5) return drawn(*others, wanted, i);
  const size_t place = lower(*others, i);
  const size_t first = back(place, kClose), last = std::min(others->size(), place + kClose + 1);
  return drawn({others->begin() + first, others->begin() + last}, wanted, i);
}

std::optional<Span> Moves::drawn(const std::vector<int64_t>& ops, Fate wanted, int64_t but) {
  for (int tried = 0; tried < kTries && !ops.empty(); ++tried) {
    const int64_t i = source_.choice(ops);
    const auto& stages = state_.touched[i];
    const auto start = static_cast<size_t>(source_.below(static_cast<int64_t>(stages.size())));
    for (size_t place = start; i != but && place + 1 < stages.size(); ++place)
      if (fate(i, stages[place], stages[place + 1]) == wanted) return Span{i, stages[place], stages[place + 1]};
  }
  return {};
}

Fate Moves::fate(int64_t i, int64_t a, int64_t b) const {
  if (holds(state_.made[i], b)) return Fate::kAgain;
  if (state_.away(i, a)) return Fate::kLeaves;
  return b > a + 1 ? Fate::kStays : Fate::kNone;
}

// -- parts of them

int64_t Moves::before(int64_t i, int64_t t) const {
  const auto& stages = state_.touched[i];
  return stages[lower(stages, t) - 1];
}

void Moves::remove(int64_t t, int64_t i) {
  state_.take(t, i);
  for (const int64_t j : given_.inputs[i])
    if (holds(state_.again[t], j) && !state_.reads(t, j) && !state_.gap(j, t)) remove(t, j);
}

bool Moves::run_again(int64_t i, int64_t a, int64_t b) {
  auto at = where(b, a);
  if (!windows_.empty() && given_.hideable[i] && source_.random() < 0.7) {
    const size_t place = lower(windows_, b + 1);
    std::vector<int64_t> near;
    for (size_t k = back(place, kNear); k < place; ++k)
      if (windows_[k] > a) near.push_back(windows_[k]);
    if (!near.empty()) at = source_.choice(near);
  }
  return at && put(i, *at);
}

std::optional<int64_t> Moves::where(int64_t reader, int64_t stage) const {
  while (reader > stage && given_.comm[reader]) --reader;
  if (reader > stage && reader >= given_.replays_from) return reader;
  return {};
}

bool Moves::put(int64_t i, int64_t at) {
  auto [found, sooner] = needed(i, at);
  if (found.empty()) return false;
  if (given_.comm[at]) {
    int64_t took = 0;
    for (const int64_t j : found) took += given_.time[j];
    for (const int64_t j : state_.again[at]) took += given_.time[j];
    if (took > given_.time[at]) return false;
  }
  std::sort(sooner.begin(), sooner.end());
  for (const int64_t j : sooner) state_.put(silent(at), j);
  std::vector<int64_t> order = found;
  std::sort(order.begin(), order.end());
  for (const int64_t j : order) state_.put(at, j);
  for (const int64_t j : found) {
    for (const int64_t k : given_.inputs[j]) {
      if (k == at || holds(state_.again[at], k) || holds(given_.inputs[at], k) || source_.random() >= 0.1) continue;
      const int64_t a = before(k, at);
      if (!state_.away(k, a)) state_.send(k, a);
    }
  }
  return true;
}

Moves::Needed Moves::needed(int64_t i, int64_t at) {
  const auto is_in = [](const std::vector<int64_t>& ops, int64_t j) {
    return std::find(ops.begin(), ops.end(), j) != ops.end();
  };
  std::vector<int64_t> found, talks, sooner, stack = {i};
  while (!stack.empty()) {
    const int64_t j = stack.back();
    stack.pop_back();
    if (is_in(found, j) || is_in(talks, j) || holds(state_.again[at], j)) continue;
    if (given_.comm[at] && given_.comm[j] && j != i) {
      talks.push_back(j);
      continue;
    }
    const bool cannot_hide = given_.comm[at] && (given_.comm[j] || holds(given_.inputs[at], j));
    const bool may_run = given_.replay[j] && at >= given_.replays_from;
    if (j >= at || cannot_hide || !may_run || found.size() == kDepth) return {};
    found.push_back(j);
    for (const int64_t k : given_.inputs[j])
      if (k != at && !state_.there(k, at) && source_.random() < 0.9) stack.push_back(k);
  }
  const int64_t earlier = silent(at);
  for (const int64_t j : talks) {
    if (is_in(sooner, j) || state_.there(j, earlier)) continue;
    const Needed more = needed(j, earlier);
    if (more.found.empty()) return {};
    for (const int64_t k : more.found)
      if (!is_in(sooner, k)) sooner.push_back(k);
  }
  return {found, sooner};
}

// The last stage before one that does not communicate; 0 where there is none.
int64_t Moves::silent(int64_t at) const {
  while (at > 0 && given_.comm[at]) --at;
  return at;
}

}  // namespace joint
