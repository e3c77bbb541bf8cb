#include "joint/patterns.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace joint {

namespace {

// The constants of patterns.py, by their names there.
const std::vector<int64_t> kWidths = {2, 3, 4, 8, 16}, kSides = {-1, 1}, kStrides = {1, 1, 1, 2, 3};
constexpr int64_t kNext = 4, kBeside = 4, kFar = 60, kShort = 8;
constexpr int kRounds = 12, kSent = 12;
constexpr double kWaiting = 0.3;

}  // namespace

Patterns::Patterns(Moves& moves, State& state, Random& source)
    : moves_(moves), state_(state), given_(state.given), source_(source) {}

bool Patterns::any() {
  const double roll = source_.random();
  if (roll < 0.1) {
    if (moves_.runs().empty()) return false;
    const auto [t, i] = moves_.worth_sending();
    return stay(t, i);
  }
  if (roll < 0.4) return copied();
  return roll < 0.7 ? beside() : wide();
}

// -- room

bool Patterns::stay(int64_t t, int64_t i) {
  const int64_t a = moves_.before(i, t);
  moves_.remove(t, i);
  const auto b = state_.gap(i, a);
  if (!b) return false;
  const int64_t whole = given_.budget - given_.static_bytes;
  for (int round = 0; round < kRounds; ++round) {
    const auto& local = state_.local();
    int64_t stage = a, over = state_.held[a] + local[a] - whole;
    for (int64_t k = a + 1; k <= *b; ++k) {
      const int64_t above = state_.held[k] + local[k] - whole;
      if (above > over) stage = k, over = above;
    }
    if (over <= 0) return true;
    if (!sent(i, stage, over)) return false;
  }
  return false;
}

bool Patterns::sent(int64_t but, int64_t stage, int64_t missing) {
  std::vector<Span> held;
  for (const int64_t j : moves_.sized()) {
    if (j >= stage) break;
    const auto around = j != but ? state_.around(j, stage) : std::nullopt;
    if (around && !state_.away(j, around->first)) held.push_back({j, around->first, around->second});
  }
  for (int tried = 0; tried < kSent && missing > 0 && !held.empty(); ++tried) {
    const auto count = static_cast<int64_t>(held.size());
    const int64_t one = source_.below(count), other = source_.below(count);
    const auto length = [&](int64_t place) { return held[place].after - held[place].before; };
    const int64_t longer = length(other) > length(one) ? other : one;
    const Span span = held[longer];
    held.erase(held.begin() + longer);
    state_.send(span.op, span.before);
    missing -= given_.size[span.op];
  }
  return missing <= 0;
}

// -- others alike

bool Patterns::copied() {
  int64_t a = 0, b = 0, i = 0;
  if (!moves_.runs().empty() && source_.random() < 0.6) {
    std::tie(b, i) = source_.choice(moves_.runs());
    a = moves_.before(i, b);
  } else if (!moves_.gone().empty()) {
    std::tie(a, i) = source_.choice(moves_.gone());
    b = state_.away(i, a)->read_at;
  } else {
    return false;
  }
  const int64_t side = source_.choice(kSides);
  const auto other = further(i, side * source_.between(1, kNext));
  return other && imitate(i, a, b, *other);
}

bool Patterns::beside() {
  if (moves_.runs().empty()) return false;
  const int64_t i = source_.choice(moves_.runs()).second;
  const auto other = further(i, source_.choice(kSides));
  if (!other) return false;
  const int64_t apart = *other - i;
  const int64_t first = std::max<int64_t>(0, i - source_.between(1, kBeside));
  const int64_t last = std::min(given_.count(), i + source_.between(2, kBeside + 1));
  bool is_done = false;
  for (int64_t j = first; j < last; ++j) {
    const int64_t like = j + apart;
    if (like < 0 || like >= given_.count() || !moves_.are_alike(j, like)) continue;
    const auto span = decided(j);
    is_done = (span && imitate(j, span->first, span->second, like)) || is_done;
  }
  return is_done;
}

bool Patterns::wide() {
  int64_t a = 0, i = 0;
  bool is_changed = false;
  if (!moves_.gone().empty() && (moves_.runs().empty() || source_.random() < 0.5)) {
    std::tie(a, i) = source_.choice(moves_.gone());
    is_changed = source_.random() < kWaiting ? moves_.postpone(a, i) : moves_.redecide(a, i);
  } else if (!moves_.runs().empty()) {
    const auto [t, op] = source_.choice(moves_.runs());
    i = op;
    a = moves_.before(i, t);
    is_changed = moves_.withdraw(t, i);
  } else {
    return false;
  }
  const size_t place = upper(state_.touched[i], a);
  if (!is_changed || place == state_.touched[i].size()) return false;
  const int64_t b = state_.touched[i][place];
  const int64_t side = source_.choice(kSides);
  const int64_t step = side * source_.choice(kStrides);
  const int64_t width = source_.choice(kWidths);
  bool is_done = false;
  for (int64_t number = 1; number < width; ++number) {
    const auto other = further(i, step * number);
    if (other) is_done = imitate(i, a, b, *other) || is_done;
  }
  return is_done;
}

// -- parts of them

std::optional<std::pair<int64_t, int64_t>> Patterns::decided(int64_t i) const {
  const auto& stages = state_.touched[i];
  for (size_t place = 1; place < stages.size(); ++place) {
    const int64_t a = stages[place - 1], b = stages[place];
    const Fate fate = moves_.fate(i, a, b);
    if (fate != Fate::kNone && (fate != Fate::kStays || b - a >= kShort)) return std::pair{a, b};
  }
  return {};
}

bool Patterns::imitate(int64_t i, int64_t a, int64_t b, int64_t other) {
  const Fate fate = moves_.fate(i, a, b);
  const auto& users = given_.users;
  const size_t place = lower(users[i], b);
  if (fate == Fate::kNone || place == users[i].size() || users[other].size() != users[i].size()) return false;
  const int64_t reader = users[other][place];
  if (fate == Fate::kAgain) return run(other, reader, reader - (users[i][place] - b));
  const auto before = released(other, reader);
  if (!before) return false;
  const Away* as = fate == Fate::kLeaves ? state_.away(i, a) : nullptr;
  const int64_t leaves = *before + (as ? as->behind - a : 0);
  if (const Away* is_away = state_.away(other, *before)) {
    if (fate == Fate::kLeaves && is_away->behind == leaves) return false;
    state_.keep(other, *before);
  }
  if (fate != Fate::kLeaves) return true;
  state_.send(other, *before, leaves);
  return state_.away(other, *before) != nullptr;
}

std::optional<int64_t> Patterns::served(int64_t j, int64_t reader) const {
  const auto &stages = state_.touched[j], &made = state_.made[j];
  if (holds(made, reader)) return reader;
  const int64_t last = stages[lower(stages, reader) - 1];
  if (holds(made, last) && last != j && reader - last < kFar) return last;
  return {};
}

std::optional<int64_t> Patterns::released(int64_t j, int64_t reader) {
  const auto at = served(j, reader);
  if (at) moves_.remove(*at, j);
  const auto& stages = state_.touched[j];
  const size_t place = lower(stages, reader);
  if (place > 0 && place < stages.size() && stages[place] == reader) return stages[place - 1];
  return {};
}

bool Patterns::run(int64_t j, int64_t reader, int64_t at) {
  const auto before = served(j, reader);
  if (at <= j || before == at) return false;
  if (before) moves_.remove(*before, j);
  return !holds(state_.again[at], j) && moves_.put(j, at);
}

std::optional<int64_t> Patterns::further(int64_t i, int64_t places) const {
  const auto& others = moves_.alike(i);
  const int64_t place = static_cast<int64_t>(lower(others, i)) + places;
  if (place < 0 || place >= static_cast<int64_t>(others.size())) return {};
  return others[place];
}

}  // namespace joint
