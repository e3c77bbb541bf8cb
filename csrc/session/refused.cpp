// What a session says of requests that the allocator has no block for.
#include <algorithm>
#include <sstream>

#include "follow/frames.h"
#include "session/arena.h"
#include "session/session.h"

namespace bayplan::swap {
namespace {

uint64_t whole(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

void Session::note_request(uint64_t expected, uint64_t had, const Layout& layout) {
  const auto stats = memory();
  const auto of = [](const auto& stat, size_t pool) { return static_cast<uint64_t>(stat[pool].current); };
  constexpr auto kOfSmall = static_cast<size_t>(c10::CachingAllocator::StatType::SMALL_POOL);
  const RunningOperator& running = state_.running;
  latest_ = Asked{running.frame == nullptr ? nullptr : running.info,
                  state_.iterations,
                  running.given.bytes,
                  expected,
                  had,
                  layout.largest_gap(),
                  of(stats.reserved_bytes, kAllPools),
                  of(stats.active_bytes, kAllPools),
                  of(stats.reserved_bytes, kOfSmall),
                  of(stats.active_bytes, kOfSmall),
                  0};
}

std::string Session::latest_request() const {
  const Lock held(store_.lock);
  if (latest_.iteration == 0) return "";
  const auto mib = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::ostringstream said;
  said.precision(1);
  said << std::fixed << "the last request without a block came in iteration " << latest_.iteration << ", from "
       << (latest_.info == nullptr ? std::string("outside of operators") : latest_.info->name);
  if (latest_.reserved == 0) {
    if (latest_.info != nullptr) said << ": what it reads and has made stays while it runs";
    return said.str();
  }
  if (latest_.info != nullptr)
    said << " (its request " << latest_.had + 1 << ", beside arguments of " << mib(latest_.given) << " MiB)";
  if (latest_.expected > 0) said << ", and was expected to be for " << mib(latest_.expected) << " MiB";
  said << "; something left for it " << latest_.answers << " times. Of " << mib(latest_.reserved)
       << " MiB that the allocator held then " << mib(latest_.active) << " were in use, of these "
       << mib(latest_.small_active) << " of " << mib(latest_.small_reserved) << " for requests up to 1 MiB";
  if (latest_.gap > 0) said << "; the largest free range was of " << mib(latest_.gap) << " MiB";
  return said.str();
}

// Whatever leaves: the most that an operator has had at once with its arguments, or the one that runs will have.
uint64_t Session::most_needed() const {
  const RunningOperator& running = state_.running;
  const bool known = running.frame != nullptr && !needs_.ways(running.info->id, running.given).empty();
  return std::max(most_needed_, known ? running.distinct + needs_.of(running.info->id, running.given) : 0);
}

// Whatever is in use and could not leave even if the host had room for it at once.
void Session::note_refused(const Pins& pins) {
  const RunningOperator& running = state_.running;
  if (grounds_.segments() == Segments::kNone)
    latest_ = Asked{running.frame == nullptr ? nullptr : running.info, state_.iterations};
  const auto stats = memory();
  const auto movable = passive_.movable(pins);
  const auto active = [&](c10::CachingAllocator::StatType pool) {
    return static_cast<uint64_t>(stats.active_bytes[static_cast<size_t>(pool)].current);
  };
  const uint64_t small = active(c10::CachingAllocator::StatType::SMALL_POOL);
  const uint64_t large = active(c10::CachingAllocator::StatType::LARGE_POOL);
  kept_ = {small - std::min(small, movable.small), large - std::min(large, movable.large)};
  least_bytes_ = least_with(passive_.largest_bytes());
}

uint64_t Session::least_bytes_for(uint64_t bytes) const { return least_bytes_ == 0 ? 0 : least_with(bytes); }

// Requests of at most 1 MiB have segments or pages of their own, of 2 MiB; an arena for the others has 10 MiB or more,
// and their pages 20.
uint64_t Session::least_with(uint64_t bytes) const {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  const bool is_small = SmallRequests::is_small(bytes), pages = grounds_.segments() == Segments::kExpandable;
  const uint64_t small = kept_.small + (is_small ? block_of(bytes) : 0);
  const uint64_t large = kept_.large + (is_small ? 0 : block_of(bytes));
  const uint64_t for_large = whole(std::max(large, large > 0 ? 10 * kMiB : 0), (pages ? 20 : 2) * kMiB);
  return std::max(whole(small, 2 * kMiB) + for_large, whole(most_needed(), 2 * kMiB));
}

}  // namespace bayplan::swap
