// Windows: while a collective runs, its rank computes nothing of its own; what is run again then costs no time.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "recompute/tape.h"

namespace bayplan::recompute {

// What the next windows of a device run: one after the other, as the program comes to wait for its collectives.
class Windows : public std::enable_shared_from_this<Windows> {
 public:
  using Work = std::vector<std::pair<std::shared_ptr<Tape>, std::vector<NodeIndex>>>;

  // `timed`: notes on the device's stream when each of the program's waits began and ended.
  Windows(c10::Device device, bool timed) : device_(device), timed_(timed) {}
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // The waits are events there, too.
  void tell(std::shared_ptr<MemoryLog> log);
  // From now on the program's waits on this device open windows. One may watch a device at a time.
  void watch();
  void stop();
  // Replaces what is planned for the windows to come. `in_wait` is called in each, with its number from here on.
  void plan(std::vector<Work> windows, std::function<void(int64_t)> in_wait = nullptr);
  // An operator on the device begins or ends, outside of regions.
  void begin_operator(const at::RecordFunction& frame);
  void end_operator();
  // Once so many operators outside of regions have begun, `then` is called before the next one on the stream that is
  // current now: what it sends comes behind that. At most once; it may ask for another pause.
  void pause_after(int64_t operators, std::function<void()> then);
  // Calls what still waits for its operators, and what that asks for.
  void end_pauses();
  // A window opens: runs what stands first. Returns how many nodes ran.
  int64_t open();
  int64_t opened() const { return opened_; }

  // A moment of the current stream, and when it was, in microseconds since the first.
  uint32_t mark();
  double at_us(uint32_t mark) const;
  // Of each wait: its first and its last moment.
  const std::vector<std::pair<uint32_t, uint32_t>>& waits() const { return waits_; }
  void begin_wait();
  void end_wait();
  const c10::Device& device() const { return device_; }

  // The program waits for a collective that no operator waits for, but a process group's own work. Opens a window, if
  // the wait is of the stream on which the watch began, and no operator has opened one for it. True: `end_wait_on` ends
  // it.
  static bool begin_wait_on(c10::Device device);
  static void end_wait_on(c10::Device device);

 private:
  void end_pause();
  void note_reads(const at::RecordFunction& frame);

  const c10::Device device_;
  const bool timed_;
  std::vector<std::pair<uint32_t, uint32_t>> waits_;
  std::vector<int64_t> host_ns_;  // of a device without streams
  swap::Tape marks_;
  std::shared_ptr<MemoryLog> log_;
  std::deque<Work> windows_;
  std::function<void(int64_t)> in_wait_;
  int64_t opened_ = 0, planned_ = 0;   // windows so far; those before the plan
  std::optional<c10::Stream> stream_;  // on which the program computes: others' waits stall nothing
  bool waiting_ = false;
  std::atomic<bool> pausing_{false};
  // Under Python's lock.
  int64_t before_pause_ = 0;
  std::optional<c10::Stream> paused_on_;
  std::function<void()> in_pause_;
};

}  // namespace bayplan::recompute
