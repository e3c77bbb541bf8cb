// What operators ask of the allocator, results and what they need inside: what one with such arguments has asked for
// before, else, as a multiple of its arguments, the most that others of its kind have.
#pragma once

#include <c10/util/flat_hash_map.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "follow/requests.h"

namespace bayplan::swap {

// Bytes of the storages among an operator's arguments, and of the largest one.
struct Arguments {
  uint64_t bytes = 0;
  uint64_t largest = 0;
};

// What operators at the same places of the iteration before asked for. Of arguments that are as large as then (weights)
// and others that have grown, what is asked for grows as those do.
class PlaceNeeds {
 public:
  // The place (phase, operator, which of these), and the bytes of its arguments in their order.
  static uint64_t key_of(uint64_t phase, uint32_t id, uint64_t nth) {
    return c10::hash_combine(c10::hash_combine(id, phase), nth);
  }
  void learn(uint64_t place, const std::vector<uint64_t>& given, uint64_t asked) {
    if (places_.size() >= kMost) places_.clear();
    Known& known = places_[place];
    known.given = given;
    known.asked = asked;
  }
  // At most so many bytes if it grows with its arguments, each of which may count; 0: not known, or beyond any device.
  uint64_t of(uint64_t place, const std::vector<uint64_t>& given) const {
    const auto found = places_.find(place);
    if (found == places_.end() || found->second.given.size() != given.size()) return 0;
    const std::vector<uint64_t>& before = found->second.given;
    double growth = 1;
    for (size_t number = 0; number < given.size(); ++number) {
      if (before[number] == 0) continue;
      growth = std::max(growth, static_cast<double>(given[number]) / static_cast<double>(before[number]));
    }
    const double bytes = std::ceil(growth * static_cast<double>(found->second.asked));
    return bytes > static_cast<double>(kMostBytes) ? 0 : static_cast<uint64_t>(bytes);  // another operator's place
  }

 private:
  static constexpr size_t kMost = 65536;                     // operators of an iteration
  static constexpr uint64_t kMostBytes = uint64_t{1} << 40;  // more than any device has
  struct Known {
    std::vector<uint64_t> given = {};
    uint64_t asked = 0;
  };
  ska::flat_hash_map<uint64_t, Known> places_;
};

// What an operator that the allocator had no block for may have met: the allocator gave its cache back; or it ran
// again, so that what is free has to lie as it needs it, the next time before it begins.
enum class Shortage : uint8_t { kRetry, kAgain };

class OperatorNeeds {
 public:
  using Way = std::vector<Requests::Event>;

  // An operator of that id, with arguments of so many bytes, has asked for so many at once or, where that was not seen,
  // in all; `events` are what was seen.
  void learn(uint32_t id, const Arguments& given, uint64_t asked, const Way& events) {
    if (alike_.size() >= kMostAlike) alike_.clear();
    Alike& same = alike_[key_of(id, given)];
    if (events.empty() && !same.ways.empty()) return;  // it was seen before
    Need& need = needs_[id];
    need.ratio = std::max(need.ratio, ratio_of(asked, given.bytes));
    need.arguments = std::max(need.arguments, given.bytes);
    need.asked = std::max(need.asked, asked);
    same.asked = std::max(same.asked, asked);
    same.large = same.large || std::any_of(events.begin(), events.end(),
                                           [](const Requests::Event& event) { return event.bytes > kSmallBytes; });
    if (std::find(same.ways.begin(), same.ways.end(), events) == same.ways.end()) same.ways.push_back(events);
    same.varies = same.varies || same.ways.size() > kMostWays || events.size() > kMostEvents;
    if (same.varies) same.ways.clear();
  }

  // Whether one with such arguments has run.
  bool knows(uint32_t id, const Arguments& given) const { return alike_.count(key_of(id, given)) > 0; }

  // Whether one with such arguments has asked for a block that may lie in an arena.
  bool asks_large(uint32_t id, const Arguments& given) const {
    const auto same = alike_.find(key_of(id, given));
    return same != alike_.end() && same->second.large;
  }

  // What one with such arguments has met, and may meet the next time.
  void note(Shortage met, uint32_t id, const Arguments& given) {
    const auto same = alike_.find(key_of(id, given));
    if (same != alike_.end()) same->second.met[static_cast<size_t>(met)] = true;
  }
  bool has_met(Shortage met, uint32_t id, const Arguments& given) const {
    const auto same = alike_.find(key_of(id, given));
    return same != alike_.end() && same->second.met[static_cast<size_t>(met)];
  }

  // What such operators have asked for and given back, in order: each way that was seen, and none where nothing was, or
  // too much that differs.
  const std::vector<Way>& ways(uint32_t id, const Arguments& given) const {
    static const std::vector<Way> none;
    const auto same = alike_.find(key_of(id, given));
    return same == alike_.end() ? none : same->second.ways;
  }

  // What its next request is for, after these; 0: not known.
  uint64_t next(uint32_t id, const Arguments& given, const Way& before) const {
    uint64_t most = 0;
    for (const Way& way : ways(id, given)) {
      if (way.size() <= before.size() || !std::equal(before.begin(), before.end(), way.begin())) continue;
      const auto rest = way.begin() + static_cast<std::ptrdiff_t>(before.size());
      const auto found = std::find_if(rest, way.end(), [](const Requests::Event& event) { return event.bytes > 0; });
      if (found != way.end()) most = std::max(most, found->bytes);
    }
    return most;
  }

  // At most so many bytes, as far as is known; of an operator that never ran four times its arguments, or eight times
  // the largest one where there are many.
  uint64_t of(uint32_t id, const Arguments& given) const {
    const auto same = alike_.find(key_of(id, given));
    if (same != alike_.end()) return same->second.asked;
    const auto found = needs_.find(id);
    if (found == needs_.end()) return std::min(4 * given.bytes, 8 * given.largest);
    const Need& need = found->second;
    const double grown = static_cast<double>(need.asked) * std::max(1.0, ratio_of(given.bytes, need.arguments));
    return static_cast<uint64_t>(std::min(grown, need.ratio * static_cast<double>(std::max<uint64_t>(given.bytes, 1))));
  }

 private:
  static constexpr size_t kMostAlike = 4096;  // programs whose sizes never come again
  static constexpr size_t kMostEvents = 64;   // of longer ones only the most that they have at once is kept
  static constexpr size_t kMostWays = 4;
  static constexpr uint64_t kSmallBytes = uint64_t{1} << 20;  // requests of at most so much have segments of their own

  struct Need {
    double ratio = 0;
    uint64_t arguments = 0;
    uint64_t asked = 0;
  };
  struct Alike {
    uint64_t asked = 0;
    std::vector<Way> ways = {};
    bool varies = false;
    bool large = false;
    std::array<bool, 2> met = {};  // by shortage
  };
  static double ratio_of(uint64_t bytes, uint64_t base) {
    return static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(base, 1));
  }
  // Two that mix to one number are taken for alike, which costs time only.
  static uint64_t key_of(uint32_t id, const Arguments& given) {
    return c10::hash_combine(c10::hash_combine(id, given.bytes), given.largest);
  }
  ska::flat_hash_map<uint32_t, Need> needs_;
  ska::flat_hash_map<uint64_t, Alike> alike_;  // what operators with such arguments have asked for
};

}  // namespace bayplan::swap
