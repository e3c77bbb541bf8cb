// Where the host reads from the device, and how what leaves makes way for that: both take the same link, where a read
// of a few bytes waits behind every copy that was queued before it, and the program with it.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace bayplan::swap {

// Whether the host waits, in the operator of this frame itself, for something that it reads from the device.
bool reads_on_host(const at::RecordFunction& frame, c10::Device device);

// What a policy knows of reads, and of copies that leave; times in operators, which take the mean time each.
struct Pace {
  std::vector<uint32_t> reads;  // at these operators, in their order
  double latency = 0;           // of a copy,
  double per_byte = 0;          // and what each byte takes
};

// The link in the iteration that runs.
class Gaps {
 public:
  Gaps() = default;
  explicit Gaps(Pace pace) : pace_(std::move(pace)) {}

  // Whether there is anything to make way for.
  bool known() const { return !pace_.reads.empty(); }
  void restart() { busy_until_ = 0; }
  // Whether a copy had better be queued before the operator `next` than later, up to the operator `latest`: it has
  // ended when the host next reads, or no pause between two reads is long enough, and none that is left is longer.
  bool suits(uint32_t next, uint64_t bytes, uint32_t latest) const;
  // It is queued.
  void queue(uint32_t next, uint64_t bytes) { busy_until_ = end(next, bytes); }

 private:
  double end(uint32_t next, uint64_t bytes) const;

  Pace pace_;
  double busy_until_ = 0;
};

}  // namespace bayplan::swap
