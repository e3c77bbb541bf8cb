// The rules are those of c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11 to 2.13; each function names its own there.
#include "sim/segments.h"

#include <algorithm>
#include <utility>

#include "sim/machine.h"

namespace sim {
namespace {

constexpr size_t kGranule = 512;                       // kMinBlockSize
constexpr size_t kSmallSize = size_t{1} << 20;         // The largest request of the small pool.
constexpr size_t kSmallSegment = size_t{2} << 20;      // kSmallBuffer
constexpr size_t kLargeSegment = size_t{20} << 20;     // large_segment_size
constexpr size_t kLeastOwnSegment = size_t{10} << 20;  // kMinLargeAlloc
constexpr size_t kRoundLarge = size_t{2} << 20;

size_t rounded_up(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

}  // namespace

// round_size, get_pool, get_allocation_size
SegmentRequest Segments::request(size_t bytes, size_t stream) {
  SegmentRequest request{bytes, rounded_up(std::max<size_t>(bytes, 1), kGranule), 0, stream, false};
  request.small = request.bytes <= kSmallSize;
  request.segment_bytes = request.small                      ? kSmallSegment
                          : request.bytes < kLeastOwnSegment ? kLargeSegment
                                                             : rounded_up(request.bytes, kRoundLarge);
  return request;
}

Chunk* Segments::previous(const Chunk& chunk) {
  auto at = chunks_.find(chunk.offset);
  if (at == chunks_.begin()) return nullptr;
  Chunk& before = std::prev(at)->second;
  return before.segment == chunk.segment ? &before : nullptr;
}

Chunk* Segments::next(const Chunk& chunk) {
  auto at = std::next(chunks_.find(chunk.offset));
  return at != chunks_.end() && at->second.segment == chunk.segment ? &at->second : nullptr;
}

void Segments::insert(Chunk& chunk) {
  Pool& pool = pool_of(chunk);
  chunk.state = Chunk::State::kFree;
  if (!chunk.mapped) {
    pool.unmapped.insert({chunk.segment->stream, chunk.offset});
    return;
  }
  pool.free.insert({chunk.segment->stream, chunk.bytes, chunk.offset});
  if (chunk.segment->expandable() || !is_split(chunk)) return;
  ++pool.split;
  pool.split_bytes += static_cast<int64_t>(chunk.bytes);
}

void Segments::erase(Chunk& chunk) {
  Pool& pool = pool_of(chunk);
  if (!chunk.mapped) {
    pool.unmapped.erase({chunk.segment->stream, chunk.offset});
    return;
  }
  pool.free.erase({chunk.segment->stream, chunk.bytes, chunk.offset});
  if (chunk.segment->expandable() || !is_split(chunk)) return;
  --pool.split;
  pool.split_bytes -= static_cast<int64_t>(chunk.bytes);
}

// try_merge_blocks
Chunk& Segments::joined(Chunk& chunk) {
  auto joins = [&](Chunk* other) {
    return other != nullptr && other->state == Chunk::State::kFree && other->mapped == chunk.mapped;
  };
  Chunk* whole = &chunk;
  if (Chunk* before = previous(chunk); joins(before)) {
    erase(*before);
    before->bytes += chunk.bytes;
    chunks_.erase(chunk.offset);
    whole = before;
  }
  if (Chunk* after = next(*whole);
      after != nullptr && after->state == Chunk::State::kFree && after->mapped == whole->mapped) {
    erase(*after);
    whole->bytes += after->bytes;
    chunks_.erase(after->offset);
  }
  return *whole;
}

Chunk& Segments::cut(Chunk& chunk, size_t bytes) {
  const size_t rest = chunk.offset + bytes;
  Chunk& added = chunks_.emplace(rest, Chunk{rest, chunk.bytes - bytes, chunk.segment}).first->second;
  added.mapped = chunk.mapped;
  chunk.bytes = bytes;
  return added;
}

size_t Segments::room(const Key& key) {
  const Chunk& chunk = chunk_at(key);
  const Chunk* after = next(chunk);
  return chunk.bytes + (after != nullptr && !after->mapped ? after->bytes : 0);
}

// get_free_block. Of an expandable segment the size counts that a chunk could grow to.
Chunk* Segments::find(const SegmentRequest& request) {
  const std::set<Key>& free = pools_[request.small ? 0 : 1].free;
  auto of_stream = [&](auto at) { return at != free.end() && std::get<0>(*at) == request.stream; };
  auto expandable = [&](auto at) { return chunk_at(*at).segment->expandable(); };
  auto best = free.lower_bound({request.stream, request.bytes, 0});
  if (!of_stream(best)) return nullptr;
  if (expandable(best) && rules_.expandable) {
    for (auto at = std::next(best); expandable(best) && of_stream(at) && room(*at) < room(*best); ++at) best = at;
  } else if (expandable(best)) {
    do ++best;
    while (of_stream(best) && expandable(best));
    if (!of_stream(best)) return nullptr;
  }
  Chunk& chunk = chunk_at(*best);
  if (request.bytes < rules_.max_split && chunk.bytes >= rules_.max_split) return nullptr;
  if (request.bytes >= rules_.max_split && chunk.bytes >= request.bytes + rules_.max_non_split_rounding) return nullptr;
  erase(chunk);
  return &chunk;
}

Segment& Segments::new_segment(const Segment& segment) {
  auto& slot = segments_[segment.begin];
  slot = std::make_unique<Segment>(segment);
  return *slot;
}

// alloc_block. The limit is compared with what is asked of the driver, before pages are rounded.
Chunk* Segments::grow(const SegmentRequest& request) {
  if (limit_ && reserved() + request.segment_bytes > *limit_) return nullptr;
  if (rules_.expandable) return grow_range(request);
  if (reserved() + request.segment_bytes > capacity_) return nullptr;
  Machine::get().host_spend(rules_.take_ns);
  const size_t begin = addresses_.take_anywhere(request.segment_bytes);
  Segment& segment = new_segment({begin, request.segment_bytes, request.stream, request.small});
  count(stats_.segment, request.small, 1);
  count(stats_.reserved_bytes, request.small, static_cast<int64_t>(segment.bytes));
  segment.oversize = segment.bytes >= rules_.max_split;
  if (segment.oversize) stats_.oversize_segments.increase(1);
  ++stats_.num_device_alloc;
  note("segment_alloc", address_of(begin), segment.bytes, segment.stream);
  return &chunks_.emplace(begin, Chunk{begin, segment.bytes, &segment}).first->second;
}

// should_split
bool Segments::should_split(const Chunk& chunk, const SegmentRequest& request) const {
  if (chunk.segment->stitched) return false;
  const size_t rest = chunk.bytes - request.bytes;
  if (request.small || rules_.expandable) return rest >= kGranule;
  return request.bytes < rules_.max_split && rest > kSmallSize;
}

// alloc_found_block
void Segments::use(Chunk& chunk, const SegmentRequest& request) {
  if (should_split(chunk, request)) {
    Chunk& rest = cut(chunk, request.bytes);
    insert(rest);
  }
  chunk.state = Chunk::State::kUsed;
  chunk.requested = request.requested;
  count_split(request.small);
  count(stats_.allocation, request.small, 1);
  count(stats_.allocated_bytes, request.small, static_cast<int64_t>(chunk.bytes));
  count(stats_.active, request.small, 1);
  count(stats_.active_bytes, request.small, static_cast<int64_t>(chunk.bytes));
  count(stats_.requested_bytes, request.small, static_cast<int64_t>(chunk.requested));
  chunk.oversize = chunk.bytes >= rules_.max_split;
  if (chunk.oversize) stats_.oversize_allocations.increase(1);
  note("alloc", address_of(chunk.offset), chunk.requested, request.stream);
}

// free
void Segments::request_free(Chunk& chunk, bool waits) {
  const bool small = chunk.segment->small;
  if (waits) chunk.state = Chunk::State::kWaiting;
  count(stats_.allocation, small, -1);
  count(stats_.allocated_bytes, small, -static_cast<int64_t>(chunk.bytes));
  if (std::exchange(chunk.oversize, false)) stats_.oversize_allocations.decrease(1);
  note("free_requested", address_of(chunk.offset), chunk.requested, chunk.segment->stream);
}

// free_block
void Segments::complete_free(Chunk& chunk) {
  const bool small = chunk.segment->small;
  note("free_completed", address_of(chunk.offset), chunk.requested, chunk.segment->stream);
  count(stats_.active, small, -1);
  count(stats_.active_bytes, small, -static_cast<int64_t>(chunk.bytes));
  count(stats_.requested_bytes, small, -static_cast<int64_t>(chunk.requested));
  if (chunk.segment->stitched) {
    unstitch(chunk);
  } else {
    chunk.requested = 0;
    insert(joined(chunk));
  }
  count_split(small);
}

// release_block. The driver waits for the device before it takes memory back.
void Segments::release(Chunk& chunk) {
  TORCH_INTERNAL_ASSERT(!is_split(chunk), "parts of this segment are in use");
  Machine::get().host_wait_all();
  Machine::get().host_spend(rules_.return_ns);
  const Segment segment = *chunk.segment;
  note("segment_free", address_of(segment.begin), segment.bytes, segment.stream);
  erase(chunk);
  chunks_.erase(segment.begin);
  segments_.erase(segment.begin);
  addresses_.give_back_to_all(segment.begin, segment.bytes);
  count(stats_.segment, segment.small, -1);
  count(stats_.reserved_bytes, segment.small, -static_cast<int64_t>(segment.bytes));
  if (segment.oversize) stats_.oversize_segments.decrease(1);
  ++stats_.num_device_free;
}

// release_available_cached_blocks
bool Segments::release_oversize(const SegmentRequest& request) {
  if (rules_.max_split == SegmentRules::kUnlimited) return false;
  const std::set<Key>& free = pools_[request.small ? 0 : 1].free;
  const size_t wanted = std::max(request.bytes, rules_.max_split);
  // Segments that were split before the rules had a limit have parts in use.
  const auto whole = [this](const Key& key) {
    const Chunk& chunk = chunk_at(key);
    return !chunk.segment->expandable() && !is_split(chunk);
  };
  auto at = free.lower_bound({request.stream, wanted, 0});
  for (auto large = at; large != free.end() && std::get<0>(*large) == request.stream; ++large) {
    if (!whole(*large)) continue;
    release(chunk_at(*large));
    return true;
  }
  size_t released = 0;
  while (released < wanted && at != free.begin()) {  // The largest of the stream first.
    const auto [stream, bytes, offset] = *std::prev(at);
    if (stream != request.stream || bytes < rules_.max_split) break;
    --at;
    if (!whole(*at)) continue;
    const Key before = *at;
    release(chunk_at(before));
    at = free.lower_bound(before);
    released += bytes;
  }
  return released >= wanted;
}

// release_blocks, of both pools
void Segments::release_free() {
  for (const size_t pool : {1, 0}) {
    const std::vector<Key> free(pools_[pool].free.begin(), pools_[pool].free.end());
    for (const Key& key : free) {
      Chunk& chunk = chunk_at(key);
      if (!chunk.segment->expandable() && !is_split(chunk)) release(chunk);
    }
    for (const Key& key : free) {
      auto at = chunks_.find(std::get<2>(key));
      if (at != chunks_.end() && at->second.segment->expandable()) unmap(at->second);
    }
  }
}

void Segments::count(c10::CachingAllocator::StatArray& stat, bool small, int64_t amount) {
  for (const size_t kind : {size_t{0}, size_t{small ? 1u : 2u}}) {
    if (amount >= 0)
      stat[kind].increase(static_cast<size_t>(amount));
    else
      stat[kind].decrease(static_cast<size_t>(-amount));
  }
}

// Free chunks that no release can give back; those of expandable segments are left out, as there.
void Segments::count_split(bool small) {
  const Pool& pool = pools_[small ? 0 : 1];
  const size_t kind = small ? 1 : 2;
  const int64_t chunks = pool.split - stats_.inactive_split[kind].current;
  const int64_t bytes = pool.split_bytes - stats_.inactive_split_bytes[kind].current;
  if (chunks != 0) count(stats_.inactive_split, small, chunks);
  if (bytes != 0) count(stats_.inactive_split_bytes, small, bytes);
}

}  // namespace sim
