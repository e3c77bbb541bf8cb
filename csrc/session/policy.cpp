#include "session/policy.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace bayplan::swap {
namespace {

const std::vector<uint32_t> kNone;

uint64_t pair_of(uint32_t high, uint32_t low) { return uint64_t{high} << 32 | low; }

template <typename Map, typename Key>
const std::vector<uint32_t>& find_in(const Map& map, Key key) {
  const auto found = map.find(key);
  return found == map.end() ? kNone : found->second;
}

uint64_t key_at(uint64_t key, uint32_t landmark) { return key ^ (uint64_t{landmark} + 1) * 0x9e3779b97f4a7c15u; }

}  // namespace

Finder::Finder(Policy policy, Matching matching)
    : policy_(std::move(policy)), matching_(matching), order_(policy_.events.size()) {
  if (matching_ == Matching::kFeatures) course_ = Course(policy_.landmarks);
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [this](uint32_t one, uint32_t other) {
    const Spot &first = policy_.events[one].spot, &second = policy_.events[other].spot;
    return std::tie(first.landmark, first.since) < std::tie(second.landmark, second.since);
  });
  for (uint32_t number = 0; number < policy_.targets.size(); ++number) {
    const Target& target = policy_.targets[number];
    if (target.storage != 0) continue;
    by_index_.emplace(pair_of(target.op, target.position), number);
    by_key_[target.key].put(target.ordinal, number);
    by_spot_[key_at(target.key, target.spot.landmark)].put(target.spot.since, number);
    needs_results_ = needs_results_ || target.result;
  }
  for (uint32_t number = 0; number < policy_.events.size(); ++number) {
    const Event& event = policy_.events[number];
    for (const uint32_t target : event.targets) {
      TORCH_CHECK(target < policy_.targets.size(), "event ", number, " names target ", target, " of ",
                  policy_.targets.size(), ": number them from 0");
      TORCH_CHECK(event.kind != ActionKind::kSwapOut || policy_.targets[target].storage != 0, "event ", number,
                  " sends target ", target, " away: it leaves when it is sighted, give its storage to say when");
    }
    events_[place(event.anchor)].push_back(number);
  }
  for (const auto& [target, op] : policy_.arrivals) arrivals_[op].push_back(target);
}

// 2 bits of phase, 22 of the operator, 40 of the count.
uint64_t Finder::place(const Anchor& anchor) const {
  if (matching_ == Matching::kIndex) return anchor.op;
  return static_cast<uint64_t>(anchor.phase) << 62 | uint64_t{anchor.id} << 40 | anchor.ordinal;
}

void Finder::restart() {
  for (auto* targets : {&by_key_, &by_spot_}) {
    for (auto& [key, lookalikes] : *targets) lookalikes.seen = 0;
  }
  next_ = 0;
  course_.restart();
}

const std::vector<uint32_t>& Finder::events(const Anchor& anchor) {
  if (!course_.followed()) return find_in(events_, place(anchor));
  due_.clear();
  while (next_ < order_.size() && course_.reached(policy_.events[order_[next_]].spot)) due_.push_back(order_[next_++]);
  return due_;
}

uint32_t Finder::place_of(const Anchor& anchor) const {
  return course_.followed() ? policy_.landmarks[course_.landmark()].op + course_.since() : anchor.op;
}

const std::vector<uint32_t>& Finder::arrivals(uint32_t op) const { return find_in(arrivals_, op); }

std::optional<uint32_t> Finder::target(uint64_t key, uint32_t op, uint32_t position) {
  if (matching_ == Matching::kIndex) {
    const auto found = by_index_.find(pair_of(op, position));
    return found == by_index_.end() ? std::nullopt : std::optional<uint32_t>(found->second);
  }
  return course_.followed() ? next_alike(by_spot_, key_at(key, course_.landmark())) : next_alike(by_key_, key);
}

std::optional<uint32_t> Finder::next_alike(ByKey& targets, uint64_t key) {
  const auto found = targets.find(key);
  if (found == targets.end()) return std::nullopt;
  Lookalikes& lookalikes = found->second;
  const uint32_t ordinal = lookalikes.seen++;
  return ordinal < lookalikes.targets.size() ? lookalikes.targets[ordinal] : std::nullopt;
}

}  // namespace bayplan::swap
