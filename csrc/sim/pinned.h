// Page-locked host memory: what asynchronous copies may read and write.
#pragma once
#include <ATen/core/CachingHostAllocator.h>

#include <map>

#include "sim/machine.h"

namespace sim {

struct PinnedBlock {
  size_t bytes;
  size_t moving = 0;   // Late copies that have not moved their bytes yet.
  bool freed = false;  // By the program; the memory stays until they have.
  Shadow shadow;
};

class PinnedAllocator final : public at::HostAllocator {
 public:
  static PinnedAllocator& get();

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;
  bool record_event(void* address, void* context, c10::Stream stream) override;
  void empty_cache() override {}
  at::HostStats get_stats() override;
  void reset_accumulated_stats() override;
  void reset_peak_stats() override;

  void free(char* address);
  bool owns(const void* address);
  // The start of the block that holds this address, or null.
  char* start_of(const void* address);
  PinnedBlock& block(char* start) { return blocks_.at(start); }
  void hold(char* start);
  void drop(char* start);
  c10::CachingAllocator::Stat bytes() const { return bytes_; }

 private:
  void erase(std::map<char*, PinnedBlock>::iterator at);

  std::map<char*, PinnedBlock> blocks_;
  c10::CachingAllocator::Stat bytes_, requests_;
};

}  // namespace sim
