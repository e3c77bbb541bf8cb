// The happens-before check: keeps the races that were found and tells them.
#pragma once
#include <string>
#include <vector>

#include "sim/shadow.h"

namespace sim {

enum class RaceMode : uint8_t { kOff, kRecord, kRaise };

struct Race {
  Access first;
  Access second;
  std::string block;  // Which memory: "device block of 4096 bytes".
  std::string sentence() const;
};

class RaceLog {
 public:
  void set_mode(RaceMode mode) { mode_ = mode; }
  bool on() const { return mode_ != RaceMode::kOff; }
  // Enters an access into a block's shadow and keeps what it races with.
  void enter(Shadow& shadow, const Access& access, const VectorClock& past, const char* kind, size_t block_bytes);
  void add(const Access& first, const Access& second, const char* kind, size_t block_bytes);
  // In mode raise, throws the oldest race that was not thrown yet.
  void raise_found();
  const std::vector<Race>& found() const { return found_; }
  void clear();

 private:
  RaceMode mode_ = RaceMode::kRaise;
  std::vector<Race> found_;
  size_t raised_ = 0;
};

}  // namespace sim
