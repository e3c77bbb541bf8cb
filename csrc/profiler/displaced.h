// What the swap store tells the detailed profiler, so that a step which is swapped is recorded as if nothing were.
#pragma once

#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstdint>

#include "profiler/by_device.h"

namespace bayplan {

// By device: bytes that swapping keeps off it now and that would be allocated without it. The detailed profiler adds
// them to what the allocator reports, so that its memory curve is that of a run without swapping (SmartSwap, Figure 3).
// For the sum to be exact at every report, the store subtracts a storage's bytes before it allocates the block in which
// the storage comes back, and adds them after it has freed the block that the storage left.
inline ByDevice<std::atomic<int64_t>> displaced_bytes;

// What an allocator of an accelerator counts for a block of that size: CUDA's smallest unit, and sim's.
inline int64_t block_bytes(size_t bytes) { return static_cast<int64_t>((bytes + 511) / 512 * 512); }

// While one lives, its thread allocates the block of a storage that comes back, or goes elsewhere, of so many bytes: a
// block that is younger than its storage, and says nothing about the storage's birth.
class Returning {
 public:
  explicit Returning(uint64_t bytes) : before_(bytes_) { bytes_ = bytes; }
  ~Returning() { bytes_ = before_; }
  Returning(const Returning&) = delete;
  Returning& operator=(const Returning&) = delete;

  static bool on() { return bytes_ > 0; }
  static uint64_t bytes() { return bytes_; }

 private:
  static inline thread_local uint64_t bytes_ = 0;
  const uint64_t before_;
};

// While one lives, its thread asks the allocator for what no program has: running recorders do not see it.
class Unrecorded {
 public:
  Unrecorded() { on_ = true; }
  ~Unrecorded() { on_ = false; }
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;

  static bool on() { return on_; }

 private:
  static inline thread_local bool on_ = false;
};

// Told of what the device's allocator reports on its thread while a recorder takes these reports.
class ReportListener {
 public:
  virtual ~ReportListener() = default;
  virtual void on_report(const void* block, int64_t bytes, c10::Device device) = 0;
  virtual void on_refused(int64_t bytes, c10::Device device) = 0;
};
inline thread_local ReportListener* report_listener = nullptr;

// Called by the stores, in the place of running recorders, with every storage that is about to leave its block.
inline std::atomic<void (*)(c10::StorageImpl&)> leaving_observer{nullptr};

}  // namespace bayplan
