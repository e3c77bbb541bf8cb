// One file: changes of a choice, which mend the same lists and take each other back.
#include "joint/state.h"

#include <algorithm>
#include <utility>

namespace joint {

namespace {

using Entry = std::pair<int64_t, int64_t>;

// The entry of a key in a list sorted by keys; its end where there is none.
std::vector<Entry>::iterator entry_of(std::vector<Entry>& entries, int64_t key) {
  const auto found = std::lower_bound(entries.begin(), entries.end(), Entry{key, INT64_MIN});
  return found != entries.end() && found->first == key ? found : entries.end();
}

}  // namespace

State::State(const Given& whole, const std::vector<std::vector<int64_t>>& runs,
             const std::vector<std::array<int64_t, 3>>& sent, Shadow shadow)
    : given(whole),
      again(whole.count()),
      touched(whole.count()),
      made(whole.count()),
      leaves(whole.count()),
      returns(whole.count()),
      held(whole.count(), 0),
      ticks(whole.time),
      shadow_(std::move(shadow)),
      readers_(whole.count()),
      away_(whole.count()),
      is_dirty_(whole.count(), 0),
      is_old_(whole.count(), 0),
      last_(whole.count(), -1) {
  for (int64_t t = 0; t < given.count(); ++t) {
    touched[t].push_back(t);
    touched[t].insert(touched[t].end(), given.users[t].begin(), given.users[t].end());
    made[t] = {t};
    int64_t plain = given.size[t] + given.workspace[t];
    for (const int64_t j : given.inputs[t]) {
      readers_[t].emplace_back(j, 1);
      plain += given.size[j];
    }
    plain_.push_back(plain);
    total += ticks[t];
  }
  local_ = plain_;
  for (int64_t i = 0; i < given.count(); ++i)
    for (size_t place = 1; place < touched[i].size(); ++place)
      hold(touched[i][place - 1] + 1, touched[i][place], given.size[i]);
  for (int64_t t = 0; t < given.count(); ++t)
    for (const int64_t i : runs[t]) put(t, i);
  for (const auto& [i, a, behind] : sent) send(i, a, behind);
  begin();
}

// -- what there is

const std::vector<int64_t>& State::local() {
  found_anew();
  return local_;
}

void State::found_anew() {
  for (const int64_t t : dirty_) {
    if (!is_old_[t]) {
      is_old_[t] = 1;
      was_.emplace_back(t, local_[t]);
    }
    local_[t] = again[t].empty() ? plain_[t] : most(t);
    is_dirty_[t] = 0;
  }
  dirty_.clear();
}

std::optional<int64_t> State::gap(int64_t i, int64_t a) const {
  const auto& stages = touched[i];
  const size_t place = upper(stages, a);
  if (place == stages.size() || place == 0 || holds(made[i], stages[place]) || stages[place - 1] != a) return {};
  return stages[place];
}

std::optional<Gap> State::around(int64_t i, int64_t t) const {
  const auto& stages = touched[i];
  const size_t place = lower(stages, t);
  if (place == 0 || place == stages.size() || stages[place] == t || holds(made[i], stages[place])) return {};
  return Gap{stages[place - 1], stages[place]};
}

bool State::there(int64_t i, int64_t t) const { return reads(t, i) || holds(made[i], t) || around(i, t).has_value(); }

bool State::reads(int64_t t, int64_t j) const {
  const auto found = std::lower_bound(readers_[t].begin(), readers_[t].end(), Entry{j, INT64_MIN});
  return found != readers_[t].end() && found->first == j;
}

const Away* State::away(int64_t i, int64_t a) const {
  for (const Away& one : away_[i])
    if (one.touched == a) return &one;
  return nullptr;
}

std::vector<std::pair<int64_t, int64_t>> State::gone() const {
  std::vector<std::pair<int64_t, int64_t>> found;
  for (const auto& ops : away_)
    for (const Away& one : ops) found.emplace_back(one.touched, one.op);
  std::sort(found.begin(), found.end());
  return found;
}

int64_t State::owed() const {
  return owed_ + static_cast<int64_t>(shadow_.stays * static_cast<double>(held[shadow_.stage]));
}

int64_t State::leaving(const Away& one) const {
  return one.touched < shadow_.stage && shadow_.stage <= one.read_at ? shadow_.leaves[one.op] : 0;
}

// -- changes

void State::begin() {
  found_anew();
  for (const auto& [t, most] : was_) is_old_[t] = 0;
  was_.clear();
  journal_.clear();
  seen_.clear();
}

void State::undo() {
  const std::vector<Done> changes(journal_.rbegin(), journal_.rend());
  for (const Done& change : changes) change.put ? take(change.stage, change.op) : put(change.stage, change.op);
  const auto before = seen_;
  for (const auto& [at, left] : before) {
    const Away* is_away = away(at.first, at.second);
    if (is_away ? left == is_away->behind : !left) continue;
    if (is_away) keep(at.first, at.second);
    if (left) send(at.first, at.second, *left);
  }
  for (const int64_t t : dirty_) is_dirty_[t] = 0;
  dirty_.clear();
  for (const auto& [t, most] : was_) local_[t] = most;
  begin();
}

void State::send(int64_t i, int64_t a, int64_t behind) {
  const auto b = gap(i, a);
  if (!b || *b == a + 1) return;
  behind = std::max(a, std::min(behind, *b - 2));
  seen(i, a, {});
  hold(behind + 1, *b, -given.size[i]);
  away_[i].push_back({i, a, behind, *b});
  owed_ += leaving(away_[i].back());
  add(leaves[behind], {a, i});
  add(returns[*b], {a, i});
}

void State::keep(int64_t i, int64_t a) {
  const Away one = forgotten(i, a);
  hold(one.behind + 1, one.read_at, given.size[i]);
}

// It is away no longer: what it was; what is held does not change.
Away State::forgotten(int64_t i, int64_t a) {
  const auto found = away_[i].begin() + (away(i, a) - away_[i].data());
  const Away one = *found;
  away_[i].erase(found);
  owed_ -= leaving(one);
  seen(i, a, one.behind);
  drop(leaves[one.behind], {a, i});
  drop(returns[one.read_at], {a, i});
  return one;
}

void State::put(int64_t t, int64_t i) {
  journal_.push_back({true, t, i});
  for (const int64_t j : given.inputs[i]) {
    const auto found = entry_of(readers_[t], j);
    if (found != readers_[t].end()) {
      ++found->second;
      continue;
    }
    add(readers_[t], Entry{j, 1});
    if (!holds(made[j], t)) touch(j, t, false);
  }
  touch(i, t, true);
  if (again[t].empty()) add(running, t);
  add(again[t], i);
  mend(t);
}

void State::take(int64_t t, int64_t i) {
  journal_.push_back({false, t, i});
  drop(again[t], i);
  if (again[t].empty()) drop(running, t);
  untouch(i, t, reads(t, i));
  for (const int64_t j : given.inputs[i]) {
    const auto found = entry_of(readers_[t], j);
    if (--found->second > 0) continue;
    readers_[t].erase(found);
    if (!holds(made[j], t)) untouch(j, t, false);
  }
  mend(t);
}

// The stage reads or makes the output: the gap around it is two, the first none if it is made there.
void State::touch(int64_t j, int64_t t, bool is_made) {
  auto& stages = touched[j];
  const int64_t size = given.size[j];
  const size_t place = lower(stages, t);
  const int64_t a = stages[place - 1];
  dirty(a);
  if (place < stages.size() && stages[place] == t) {  // It was read there already.
    lose(j, a, t, size);
    add(made[j], t);
    return;
  }
  std::optional<int64_t> b;
  if (place < stages.size() && !holds(made[j], stages[place])) b = stages[place];
  stages.insert(stages.begin() + place, t);
  const auto left = behind(j, a);
  if (b) {
    lose(j, a, *b, size);
    hold(t + 1, *b, size);
  }
  if (is_made) {
    add(made[j], t);
    return;
  }
  hold(a + 1, t, size);
  if (left) send(j, a, *left);
}

// The stage does not make the output (it may still read it), or does not read it: the reverse.
void State::untouch(int64_t j, int64_t t, bool is_read) {
  auto& stages = touched[j];
  const int64_t size = given.size[j];
  const size_t place = lower(stages, t);
  const int64_t a = stages[place - 1];
  dirty(a);
  if (is_read) {
    drop(made[j], t);
    hold(a + 1, t, size);
    return;
  }
  const auto left = behind(j, a);
  if (!holds(made[j], t)) lose(j, a, t, size);
  drop(made[j], t);
  std::optional<int64_t> b;
  if (place + 1 < stages.size() && !holds(made[j], stages[place + 1])) b = stages[place + 1];
  if (b) {
    lose(j, t, *b, size);
    hold(a + 1, *b, size);
  }
  stages.erase(stages.begin() + place);
  if (left && b) send(j, a, *left);
}

// Forget the gap, whether it is held or away.
void State::lose(int64_t j, int64_t a, int64_t b, int64_t size) {
  hold(a + 1, away(j, a) ? forgotten(j, a).behind + 1 : b, -size);
}

void State::mend(int64_t t) {
  if (!given.comm[t]) {
    int64_t took = given.time[t];
    for (const int64_t i : again[t]) took += given.time[i];
    total += took - ticks[t];
    ticks[t] = took;
  }
  dirty(t);
}

int64_t State::most(int64_t t) {
  std::vector<int64_t> order = again[t];
  order.push_back(t);
  int64_t level = 0;
  for (const auto& [j, count] : readers_[t])
    if (!holds(again[t], j)) level += given.size[j];
  for (const int64_t i : order) {
    for (const int64_t j : given.inputs[i]) last_[j] = i;
    last_[i] = i;
  }
  const int64_t buffer = given.comm[t] ? given.size[t] + given.workspace[t] : 0;
  int64_t peak = level;
  const auto freed = [&](int64_t j, int64_t i) { return last_[j] == i && !gap(j, t) ? given.size[j] : 0; };
  for (const int64_t i : order) {
    level += given.size[i];
    peak = std::max(peak, level + given.workspace[i] + (i < t ? buffer : 0));
    for (const int64_t j : given.inputs[i]) level -= freed(j, i);
    level -= freed(i, i);
  }
  return peak;
}

void State::hold(int64_t first, int64_t last, int64_t bytes) {
  for (int64_t t = first; t < last; ++t) held[t] += bytes;
}

void State::seen(int64_t i, int64_t a, std::optional<int64_t> behind) {
  for (const auto& [at, left] : seen_)
    if (at == Gap{i, a}) return;
  seen_.push_back({{i, a}, behind});
}

std::optional<int64_t> State::behind(int64_t i, int64_t a) const {
  const Away* one = away(i, a);
  if (!one) return {};
  return one->behind;
}

void State::dirty(int64_t t) {
  if (is_dirty_[t]) return;
  is_dirty_[t] = 1;
  dirty_.push_back(t);
}

}  // namespace joint
