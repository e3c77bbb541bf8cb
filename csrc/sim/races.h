// The happens-before check: keeps the races that were found and tells them.
#pragma once
#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "sim/devices.h"

#include "sim/shadow.h"

namespace sim {

enum class RaceMode : uint8_t { kOff, kRecord, kRaise };

struct Race {
  Access first;
  Access second;
  std::string block;  // Which memory: "device block of 4096 bytes".
  size_t device;      // Of the second access.
  std::string sentence() const;
};

// Ranks are threads: each is told of the races of its own device, so that none fails for another one's.
class RaceLog {
 public:
  void set_mode(RaceMode mode) { mode_ = mode; }
  bool on() const { return mode_ != RaceMode::kOff; }
  // Enters an access into a block's shadow and keeps what it races with.
  void enter(Shadow& shadow, const Access& access, const VectorClock& past, const char* kind, size_t block_bytes);
  // What happened before this operation is known now, all of it: those of its accesses that were left open are races
  // unless the operation comes after the other one; where the other one is open too, it will be judged once more.
  void judge(size_t stream, uint64_t tick, const VectorClock& past);
  // In mode raise, throws the current device's oldest race that was not thrown yet, and lets go of the later ones.
  void raise_found();
  std::vector<Race> found() const;
  void clear();

 private:
  void add(Race race);

  std::atomic<RaceMode> mode_{RaceMode::kRaise};
  mutable std::mutex guard_;
  std::vector<Race> found_;
  // Pairs that one of their sides may yet turn out to come after (`Machine::is_open`), by the machine's lock.
  std::vector<Race> open_;
  std::array<std::atomic<size_t>, kMostDevices> to_raise_{};  // By device.
};

}  // namespace sim
