#include "joint/lanes.h"

#include <algorithm>

namespace joint {

namespace {

constexpr int64_t kEarly = 20, kLuck = 20;  // EARLY and LUCK of lanes.py.

}  // namespace

Lanes::Lanes(State& state)
    : state_(state),
      given_(state.given),
      room_(given_.count(), 0),
      back_at_(given_.count()),
      gone_(given_.count(), 0),
      due_(given_.count(), 0) {
  int64_t now = 0;
  for (const int64_t ticks : state_.ticks) {
    start_.push_back(now);
    now += ticks;
  }
  times_ = start_;
}

int64_t Lanes::took(int64_t most) {
  const std::vector<int64_t>& local = state_.local();
  int64_t least = 0;
  for (int64_t t = 0; t < given_.count(); ++t) {
    room_[t] = given_.budget - given_.static_bytes - state_.held[t] - local[t];
    least = std::min(least, room_[t]);
  }
  const int64_t spare = most - state_.total;
  if (spare < 0 || least < 0 || (given_.host && host() > *given_.host)) return kFault;
  find_talking();
  if (quiet_ > 0 && luck_ >= 0) {
    if (!pass(spare, quiet_, false)) {
      luck_ = std::min(kLuck, luck_ + 1);
      return kFault;  // Too late though nothing has come back.
    }
    --luck_;
  }
  issue();
  return pass(spare, given_.count(), true).value_or(kFault);
}

void Lanes::kept() {
  start_ = times_;
  std::vector<int64_t> stages;
  for (const auto& [at, away] : issued_) stages.push_back(at);
  std::sort(stages.begin(), stages.end());
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  quiet_ = stages.empty() ? 0 : stages[stages.size() / kEarly];
  luck_ = std::min(kLuck, luck_ + 1);
}

int64_t Lanes::host() const {
  std::vector<int64_t> change(given_.count() + 1, 0);
  for (int64_t b = 0; b < given_.count(); ++b) {
    for (const auto& [a, i] : state_.returns[b]) {
      change[state_.away(i, a)->behind] += given_.size[i];
      change[b] -= given_.size[i];
    }
  }
  int64_t held = 0, most = 0;
  for (const int64_t bytes : change) most = std::max(most, held += bytes);
  return most;
}

void Lanes::find_talking() {
  if (!given_.shared) return;
  talking_.assign(given_.count(), 0);
  for (int64_t t = 0; t < given_.count(); ++t) {
    talking_[t] = given_.comm[t];
    for (const int64_t i : state_.again[t]) talking_[t] |= given_.comm[i];
  }
}

// As late as it is in time by the stages' last known times, the last one first; later where memory has no room.
void Lanes::issue() {
  for (const auto& [at, away] : issued_) back_at_[at].clear();
  issued_.clear();
  int64_t lane = kFault;
  for (int64_t b = given_.count() - 1; b >= 0; --b) {
    const auto& read = state_.returns[b];
    for (auto gap = read.rbegin(); gap != read.rend(); ++gap) {
      const int64_t i = gap->second;
      const Away away = *state_.away(i, gap->first);
      lane = std::min(lane, start_[b]) - given_.in_time[i];
      const auto first = start_.begin() + away.behind + 2, last = start_.begin() + b + 1;
      const int64_t wanted = std::upper_bound(first, last, lane) - start_.begin() - 1;
      int64_t at = b;
      while (at > wanted && room_[at - 1] >= given_.size[i]) room_[--at] -= given_.size[i];
      lane = std::max(lane, start_[at]);
      issued_.emplace_back(at, away);
      back_at_[at].push_back(away);
    }
  }
}

// The stages before `until`, as if nothing came back unless it `is_returning`; nothing where they wait more than
// `spare`.
std::optional<int64_t> Lanes::pass(int64_t spare, int64_t until, bool is_returning) {
  int64_t now = 0, waited = 0, in_use = 0;
  size_t done = 0;
  out_free_ = in_free_ = host_free_ = 0;
  leaving_.clear();
  if (is_returning) std::fill(due_.begin(), due_.end(), 0);
  now_.clear();
  for (int64_t t = 0; t < until; ++t) {
    const int64_t before = now;
    if (is_returning)
      for (const Away& away : back_at_[t]) now = std::max(now, gone_[away.op]);
    for (; in_use > room_[t]; ++done) {
      now = std::max(now, leaving_[done].first);
      in_use -= leaving_[done].second;
    }
    if (is_returning) {
      for (auto away = back_at_[t].rbegin(); away != back_at_[t].rend(); ++away) {
        host_free_ += given_.move[away->op];
        due_[away->read_at] = in_free_ = std::max({in_free_, now, host_free_}) + given_.in_time[away->op];
      }
      now = std::max(now, due_[t]);
    }
    const bool is_alone = given_.shared && talking_[t];
    if (is_alone) now = std::max({now, out_free_, in_free_});
    waited += now - before;
    if (waited > spare) return std::nullopt;
    now_.push_back(now);
    if (given_.launched) {
      const int64_t start = now;
      now = ran(t, start);
      waited += now - start - state_.ticks[t];
      if (waited > spare) return std::nullopt;
    } else {
      now += state_.ticks[t];
    }
    if (is_alone) out_free_ = in_free_ = now;
    const size_t known = leaving_.size();
    if (!state_.leaves[t].empty()) send(t, now);
    for (size_t place = known; place < leaving_.size(); ++place) in_use += leaving_[place].second;
  }
  if (is_returning) times_.swap(now_);
  return now;
}

// When a stage has run its ops and the host has waited: `Given.ran` and `after_waits` of solvers/joint/given.py.
int64_t Lanes::ran(int64_t stage, int64_t start) {
  int64_t end = start, end_of_communication = start;
  const auto issue = [&](int64_t op, int64_t& clock) {
    host_free_ += op == stage ? given_.launch[op] : given_.again[op];
    clock = std::max(clock + given_.time[op], host_free_ + given_.tail[op]);
    if (given_.waits[op]) host_free_ = std::max(host_free_, clock);
  };
  if (given_.comm[stage]) issue(stage, end_of_communication);
  for (const int64_t op : state_.again[stage]) issue(op, end);
  if (!given_.comm[stage]) issue(stage, end);
  end = std::max(end, end_of_communication);
  if (given_.sent[stage] > 0) end = out_free_ = std::max({end, host_free_, out_free_}) + given_.sent[stage];
  if (given_.sync[stage] > 0) host_free_ = std::max(host_free_, end);
  if (given_.sync[stage] > 1) host_free_ = std::max({host_free_, out_free_, in_free_});
  const int64_t read = given_.read[stage];
  if (read > 0) end = host_free_ = out_free_ = std::max({end, host_free_, out_free_}) + read;
  return end;
}

// What leaves behind a stage, first what is read first.
void Lanes::send(int64_t stage, int64_t now) {
  std::vector<std::array<int64_t, 3>> order;
  for (const auto& [a, i] : state_.leaves[stage]) order.push_back({state_.away(i, a)->read_at, a, i});
  std::sort(order.begin(), order.end());
  for (const auto& [read, a, i] : order) {
    host_free_ += given_.move[i];
    out_free_ = gone_[i] = std::max({out_free_, now, host_free_}) + given_.out_time[i];
    leaving_.emplace_back(out_free_, given_.size[i]);
  }
}

}  // namespace joint
