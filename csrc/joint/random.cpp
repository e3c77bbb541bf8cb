#include "joint/random.h"

#include <stdexcept>

namespace joint {

namespace {

constexpr size_t kWords = 624, kApart = 397;  // MT19937, Matsumoto and Nishimura 1998, section 3.1.
constexpr uint32_t kMatrix = 0x9908b0dfU, kHigh = 0x80000000U, kLow = 0x7fffffffU;

}  // namespace

void Random::set(const std::vector<uint32_t>& state) {
  if (state.size() != kWords + 1 || state.back() > kWords) {
    throw std::invalid_argument("the state of a generator is 624 words and the place of the next one, at most 624");
  }
  words_.assign(state.begin(), state.end() - 1);
  next_ = state.back();
}

std::vector<uint32_t> Random::state() const {
  std::vector<uint32_t> found = words_;
  found.push_back(static_cast<uint32_t>(next_));
  return found;
}

double Random::random() {
  const uint32_t high = word() >> 5, low = word() >> 6;
  return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0);
}

int64_t Random::below(int64_t n) {
  int count = 0;
  while (count < 63 && n >> count != 0) ++count;
  uint64_t drawn = bits(count);
  while (drawn >= static_cast<uint64_t>(n)) drawn = bits(count);
  return static_cast<int64_t>(drawn);
}

// As Python takes them: words from the lowest on, of the last one its highest bits.
uint64_t Random::bits(int count) {
  uint64_t drawn = 0;
  for (int done = 0; done < count; done += 32) {
    uint32_t next = word();
    if (count - done < 32) next >>= 32 - (count - done);
    drawn |= static_cast<uint64_t>(next) << done;
  }
  return drawn;
}

uint32_t Random::word() {
  if (next_ >= kWords) {
    for (size_t place = 0; place < kWords; ++place) {
      const uint32_t mixed = (words_[place] & kHigh) | (words_[(place + 1) % kWords] & kLow);
      words_[place] = words_[(place + kApart) % kWords] ^ (mixed >> 1) ^ ((mixed & 1U) != 0 ? kMatrix : 0U);
    }
    next_ = 0;
  }
  uint32_t drawn = words_[next_++];
  drawn ^= drawn >> 11;
  drawn ^= (drawn << 7) & 0x9d2c5680U;
  drawn ^= (drawn << 15) & 0xefc60000U;
  return drawn ^ (drawn >> 18);
}

}  // namespace joint
