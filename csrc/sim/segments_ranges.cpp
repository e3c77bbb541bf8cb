// Segments whose memory is not what the driver gave at once: ranges that grow page by page, and stitched ones.
#include <algorithm>

#include "sim/machine.h"
#include "sim/segments.h"

namespace sim {
namespace {

constexpr size_t kSmallPage = size_t{2} << 20;
constexpr size_t kLargePage = size_t{20} << 20;
constexpr size_t kStitchedPage = size_t{2} << 20;

size_t pages_up(size_t bytes, size_t page) { return (bytes + page - 1) / page * page; }
size_t pages_down(size_t bytes, size_t page) { return bytes / page * page; }

}  // namespace

void Segments::set_rules(const SegmentRules& rules) {
  rules_ = rules;
  for (auto at = segments_.begin(); at != segments_.end();) {
    const Segment range = *(at++)->second;
    auto chunk = chunks_.find(range.begin);
    if (chunk->second.mapped || chunk->second.bytes < range.bytes) continue;
    erase(chunk->second);
    chunks_.erase(chunk);
    segments_.erase(range.begin);
    addresses_.give_back_to_all(range.begin, range.bytes);
  }
}

// find_expandable_block: the lowest addresses of a range with room, a free chunk before the unmapped one included; else
// a new range for an eighth more than the device has.
Chunk& Segments::room_in_ranges(const SegmentRequest& request) {
  Pool& pool = pools_[request.small ? 0 : 1];
  auto is_free = [](const Chunk* chunk) { return chunk != nullptr && chunk->state == Chunk::State::kFree; };
  for (auto at = pool.unmapped.lower_bound({request.stream, 0});
       at != pool.unmapped.end() && at->first == request.stream; ++at) {
    Chunk* first = &chunks_.at(at->second);
    if (Chunk* before = previous(*first); is_free(before)) first = before;
    size_t bytes = 0;
    for (const Chunk* chunk = first; bytes < request.bytes && is_free(chunk); chunk = next(*chunk))
      bytes += chunk->bytes;
    if (bytes >= request.bytes) return *first;
  }
  const size_t page = request.small ? kSmallPage : kLargePage;
  const size_t bytes = pages_up(std::max(capacity_ + capacity_ / 8, request.bytes), page);
  const size_t begin = addresses_.take_anywhere(bytes);
  Segment& range = new_segment({begin, bytes, request.stream, request.small, page});
  Chunk& chunk = chunks_.emplace(begin, Chunk{begin, bytes, &range}).first->second;
  chunk.mapped = false;
  insert(chunk);
  return chunk;
}

// try_allocate_expandable_block. What was mapped before the device was full stays cached.
Chunk* Segments::grow_range(const SegmentRequest& request) {
  Chunk* chunk = &room_in_ranges(request);
  if (!chunk->mapped) chunk = map(*chunk, std::min(chunk->bytes, request.bytes));
  while (chunk != nullptr && chunk->bytes < request.bytes) {
    Chunk& beyond = *next(*chunk);
    chunk = map(beyond, std::min(request.bytes - chunk->bytes, beyond.bytes));
  }
  if (chunk != nullptr) erase(*chunk);
  return chunk;
}

// map_block: whole pages, all or none; joined with its neighbours it is free.
Chunk* Segments::map(Chunk& chunk, size_t bytes) {
  const Segment& range = *chunk.segment;
  const size_t mapped = pages_up(bytes, range.page);
  if (reserved() + mapped > capacity_) return nullptr;
  Machine::get().host_spend(rules_.take_ns * static_cast<Nanoseconds>(mapped / range.page));
  erase(chunk);
  if (mapped < chunk.bytes) insert(cut(chunk, mapped));
  chunk.mapped = true;
  note("segment_map", address_of(chunk.offset), mapped, range.stream);
  count(stats_.reserved_bytes, range.small, static_cast<int64_t>(mapped));
  ++stats_.num_device_alloc;
  Chunk& whole = joined(chunk);
  insert(whole);
  return &whole;
}

// unmap_block, release_expandable_segment: the whole pages of a free chunk; a range without any is given back.
void Segments::unmap(Chunk& chunk) {
  Segment& range = *chunk.segment;
  const size_t begin = range.begin + pages_up(chunk.offset - range.begin, range.page);
  const size_t end = range.begin + pages_down(chunk.offset + chunk.bytes - range.begin, range.page);
  if (begin >= end) return;
  Machine& machine = Machine::get();
  machine.host_wait(machine.tail(range.stream));
  machine.host_spend(rules_.return_ns * static_cast<Nanoseconds>((end - begin) / range.page));
  erase(chunk);
  Chunk* pages = &chunk;
  if (begin > chunk.offset) {
    pages = &cut(chunk, begin - chunk.offset);
    insert(chunk);
  }
  if (end < pages->offset + pages->bytes) insert(cut(*pages, end - begin));
  pages->mapped = false;
  addresses_.drop_pages_of(begin, end - begin);
  note("segment_unmap", address_of(begin), end - begin, range.stream);
  count(stats_.reserved_bytes, range.small, -static_cast<int64_t>(end - begin));
  ++stats_.num_device_free;
  Chunk& whole = joined(*pages);
  if (whole.bytes < range.bytes) {
    insert(whole);
    return;
  }
  addresses_.give_back_to_all(range.begin, range.bytes);
  chunks_.erase(whole.offset);
  segments_.erase(range.begin);
}

// Cuts the part [begin, begin + bytes) out of a free chunk and lends it.
Chunk& Segments::carve(Chunk& chunk, size_t begin, size_t bytes) {
  erase(chunk);
  Chunk* part = &chunk;
  if (begin > chunk.offset) {
    part = &cut(chunk, begin - chunk.offset);
    insert(chunk);
  }
  if (bytes < part->bytes) insert(cut(*part, bytes));
  part->state = Chunk::State::kLent;
  part->requested = part->bytes;
  addresses_.drop_pages_of(part->offset, part->bytes);
  return *part;
}

// Line 6 of SmartSwap's Algorithm 3, by the rule of GMLake: whole pages of 2 MiB of free chunks of the same stream, the
// largest chunks first, get common addresses. Nothing new is reserved.
Chunk* Segments::stitch(const SegmentRequest& request) {
  if (!rules_.stitching || request.small) return nullptr;
  const size_t wanted = pages_up(request.bytes, kStitchedPage);
  std::vector<std::pair<Chunk*, size_t>> found;  // With the first page's offset.
  std::vector<size_t> pages;
  size_t sum = 0;
  const std::set<Key>& free = pools_[1].free;
  for (auto at = free.upper_bound({request.stream, SegmentRules::kUnlimited, 0}); at != free.begin() && sum < wanted;) {
    Chunk& chunk = chunk_at(*--at);
    const Segment& segment = *chunk.segment;
    if (segment.stream != request.stream) break;
    if (segment.expandable()) continue;
    const size_t begin = segment.begin + pages_up(chunk.offset - segment.begin, kStitchedPage);
    const size_t end = segment.begin + pages_down(chunk.offset + chunk.bytes - segment.begin, kStitchedPage);
    if (begin >= end) continue;
    found.emplace_back(&chunk, begin);
    pages.push_back(std::min(end - begin, wanted - sum));
    sum += pages.back();
  }
  if (sum < wanted) return nullptr;
  const size_t offset = addresses_.take(wanted, request.stream);
  Segment& segment = new_segment({offset, wanted, request.stream, false, 0, true});
  Chunk& whole = chunks_.emplace(offset, Chunk{offset, wanted, &segment}).first->second;
  for (size_t i = 0; i < found.size(); ++i) {
    whole.parts.push_back(&carve(*found[i].first, found[i].second, pages[i]));
    Machine::get().host_spend(rules_.take_ns);
  }
  ++stitches_.count;
  stitches_.parts += found.size();
  stitches_.bytes += wanted;
  return &whole;
}

void Segments::unstitch(Chunk& chunk) {
  for (Chunk* part : chunk.parts) {
    part->requested = 0;
    insert(joined(*part));
  }
  const Segment segment = *chunk.segment;
  chunks_.erase(segment.begin);
  segments_.erase(segment.begin);
  addresses_.give_back(segment.begin, segment.bytes, segment.stream);
}

void Segments::reset_accumulated() {
  for (auto* stats :
       {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split, &stats_.allocated_bytes,
        &stats_.reserved_bytes, &stats_.active_bytes, &stats_.inactive_split_bytes, &stats_.requested_bytes})
    for (auto& stat : *stats) stat.reset_accumulated();
  stats_.oversize_allocations.reset_accumulated();
  stats_.oversize_segments.reset_accumulated();
  stats_.num_sync_all_streams = stats_.num_device_alloc = stats_.num_device_free = 0;
  stitches_ = {};
}

void Segments::reset_peaks() {
  for (auto* stats :
       {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split, &stats_.allocated_bytes,
        &stats_.reserved_bytes, &stats_.active_bytes, &stats_.inactive_split_bytes, &stats_.requested_bytes})
    for (auto& stat : *stats) stat.reset_peak();
  stats_.oversize_allocations.reset_peak();
  stats_.oversize_segments.reset_peak();
}

void Segments::record(size_t most) {
  most_events_ = most;
  events_.clear();
}

void Segments::note(const char* action, size_t address, size_t bytes, size_t stream) {
  if (most_events_ == 0) return;
  if (events_.size() == most_events_) events_.pop_front();
  const char* label = exchange_label("");
  exchange_label(label);
  events_.push_back({action, address, bytes, stream, Machine::get().host_now(), label});
}

// snapshot
std::vector<std::vector<const Chunk*>> Segments::runs() const {
  std::vector<std::vector<const Chunk*>> all;
  const Chunk* before = nullptr;
  for (const auto& [offset, chunk] : chunks_) {
    if (!chunk.mapped || chunk.segment->stitched) {
      before = nullptr;
      continue;
    }
    if (before == nullptr || before->segment != chunk.segment) all.emplace_back();
    all.back().push_back(&chunk);
    before = &chunk;
  }
  return all;
}

}  // namespace sim
