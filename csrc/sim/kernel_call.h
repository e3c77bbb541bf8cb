// One kernel or copy on the modelled device, from its issue to its end.
#pragma once
#include <ATen/core/Tensor.h>

#include "sim/machine.h"
#include "sim/op_info.h"

namespace sim {

// Bytes that a tensor's elements occupy, each counted once however often it is broadcast.
int64_t bytes_of(const at::Tensor& tensor);

// Order of calls: construct, touch the operands, `check`, do the work, touch fresh results, `finish` or `finish_copy`.
class KernelCall {
 public:
  KernelCall(const char* op, size_t stream);
  void touch(const at::Tensor& tensor, uint8_t use);
  // The same for the first bytes of the block that begins at this address.
  void touch_bytes(const void* data, size_t bytes, uint8_t use);
  // Throws in mode raise if an access so far races.
  void check();
  void finish(OpClass op_class, c10::ScalarType dtype, int64_t flops, int64_t bytes);
  void finish_copy(Direction direction, size_t bytes);
  void finish_peer_copy(size_t target, size_t bytes);
  uint64_t tick() const { return tick_; }
  size_t stream() const { return stream_; }

 private:
  template <typename Locate>
  void enter(const void* data, uint8_t use, Locate locate);

  const char* op_;
  size_t stream_;
  uint64_t tick_ = 0;
};

// The next operation of the stream (by c10's id) takes the block at this address away from the program: it must come
// after every earlier access, reads too, though it only reads itself.
void hand_over(const void* address, size_t bytes, int64_t stream);

}  // namespace sim
