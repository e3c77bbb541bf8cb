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
  void empty_cache() override;
  at::HostStats get_stats() override;
  void reset_accumulated_stats() override;
  void reset_peak_stats() override;

  // Memory that the program has got by itself, page-locked until it takes that back; no copy uses it by then.
  void add(char* address, size_t bytes);
  void remove(char* address);
  // As PyTorch's own allocator: blocks of powers of two, kept for the next request when they are freed.
  void set_rounding(bool power_of_two);

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

  char* take(size_t bytes);

  std::map<char*, PinnedBlock> blocks_;
  std::multimap<size_t, char*> cached_;  // freed blocks by size, with rounding
  bool power_of_two_ = false;
  c10::CachingAllocator::Stat bytes_, requests_;
};

}  // namespace sim
