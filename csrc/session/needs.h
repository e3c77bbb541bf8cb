// What operators ask of the allocator, results and what they need inside: learned from what each has asked for before,
// as a multiple of its arguments.
#pragma once

#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <cstdint>

namespace bayplan::swap {

class OperatorNeeds {
 public:
  // An operator of that id, with arguments of so many bytes, has asked for so many in all.
  void learn(uint32_t id, uint64_t arguments, uint64_t asked) {
    Need& need = needs_[id];
    need.ratio = std::max(need.ratio, ratio_of(asked, arguments));
    need.arguments = std::max(need.arguments, arguments);
    need.asked = std::max(need.asked, asked);
  }

  // At most so many bytes, as far as is known; of an operator that never ran four times its arguments, or eight times
  // the largest one where there are many.
  uint64_t of(uint32_t id, uint64_t arguments, uint64_t largest) const {
    const auto found = needs_.find(id);
    if (found == needs_.end()) return std::min(4 * arguments, 8 * largest);
    const Need& need = found->second;
    const double grown = static_cast<double>(need.asked) * std::max(1.0, ratio_of(arguments, need.arguments));
    return static_cast<uint64_t>(std::min(grown, need.ratio * static_cast<double>(std::max<uint64_t>(arguments, 1))));
  }

 private:
  struct Need {
    double ratio = 0;
    uint64_t arguments = 0;
    uint64_t asked = 0;
  };
  static double ratio_of(uint64_t bytes, uint64_t base) {
    return static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(base, 1));
  }
  ska::flat_hash_map<uint32_t, Need> needs_;
};

}  // namespace bayplan::swap
