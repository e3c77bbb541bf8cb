#include "session/policy.h"

#include <c10/util/Exception.h>

namespace bayplan::swap {
namespace {

const std::vector<uint32_t> kNone;

uint64_t pair_of(uint32_t high, uint32_t low) { return uint64_t{high} << 32 | low; }

template <typename Map, typename Key>
const std::vector<uint32_t>& find_in(const Map& map, Key key) {
  const auto found = map.find(key);
  return found == map.end() ? kNone : found->second;
}

}  // namespace

Finder::Finder(Policy policy, Matching matching) : policy_(std::move(policy)), matching_(matching) {
  for (uint32_t number = 0; number < policy_.targets.size(); ++number) {
    const Target& target = policy_.targets[number];
    by_index_.emplace(pair_of(target.op, target.position), number);
    auto& targets = by_key_[target.key].targets;
    if (targets.size() <= target.ordinal) targets.resize(target.ordinal + 1);
    targets[target.ordinal] = number;
    needs_results_ = needs_results_ || target.result;
  }
  for (uint32_t number = 0; number < policy_.events.size(); ++number) {
    const Event& event = policy_.events[number];
    for (const uint32_t target : event.targets) {
      TORCH_CHECK(target < policy_.targets.size(), "event ", number, " names target ", target, " of ",
                  policy_.targets.size(), ": number them from 0");
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
  for (auto& [key, lookalikes] : by_key_) lookalikes.seen = 0;
}

const std::vector<uint32_t>& Finder::events(const Anchor& anchor) const { return find_in(events_, place(anchor)); }

const std::vector<uint32_t>& Finder::arrivals(uint32_t op) const { return find_in(arrivals_, op); }

std::optional<uint32_t> Finder::target(uint64_t key, uint32_t op, uint32_t position) {
  if (matching_ == Matching::kIndex) {
    const auto found = by_index_.find(pair_of(op, position));
    return found == by_index_.end() ? std::nullopt : std::optional<uint32_t>(found->second);
  }
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  Lookalikes& lookalikes = found->second;
  const uint32_t ordinal = lookalikes.seen++;
  return ordinal < lookalikes.targets.size() ? lookalikes.targets[ordinal] : std::nullopt;
}

}  // namespace bayplan::swap
