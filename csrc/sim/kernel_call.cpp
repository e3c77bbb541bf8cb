#include "sim/kernel_call.h"

#include <algorithm>

#include "sim/autograd.h"
#include "sim/device_memory.h"
#include "sim/known.h"
#include "sim/pinned.h"

namespace sim {
namespace {

// The dimensions that move through memory, widest stride first, those of one element or broadcast left out.
using Dims = c10::SmallVector<std::pair<int64_t, int64_t>, 5>;  // Stride, size.

Dims moving_dims(const at::Tensor& tensor) {
  Dims dims;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (tensor.size(dim) > 1 && tensor.stride(dim) != 0) dims.emplace_back(tensor.stride(dim), tensor.size(dim));
  std::sort(dims.begin(), dims.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  return dims;
}

// Sets the access's bytes within its storage, which begins at the block's byte `base`.
void locate(Access& access, const at::Tensor& tensor, size_t base) {
  const auto item = static_cast<int64_t>(tensor.itemsize());
  Dims dims = moving_dims(tensor);
  int64_t row = 1;  // Elements of the innermost run without gaps.
  while (!dims.empty() && dims.back().first <= row) {
    row = (dims.back().second - 1) * dims.back().first + row;
    dims.pop_back();
  }
  int64_t last = row;
  for (const auto& [stride, size] : dims) last += (size - 1) * stride;
  access.begin = base + static_cast<size_t>(tensor.storage_offset() * item);
  access.end = access.begin + static_cast<size_t>(last * item);
  if (dims.empty()) return;
  auto strided = std::make_shared<Strided>();
  strided->offset = access.begin;
  strided->row_bytes = static_cast<size_t>(row * item);
  for (const auto& [stride, size] : dims) {
    strided->sizes.push_back(size);
    strided->strides.push_back(stride * item);
  }
  access.strided = std::move(strided);
}

}  // namespace

int64_t bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return 0;
  int64_t elements = 1;
  for (const auto& [stride, size] : moving_dims(tensor)) elements *= size;
  return elements * static_cast<int64_t>(tensor.itemsize());
}

KernelCall::KernelCall(const char* op, size_t stream) : op_(op), stream_(stream) {
  follow_sequence();
  tick_ = Machine::get().issue(stream_);
}

// A write stands for the read of the same bytes. `locate` sets the access's bytes, given where the storage begins in
// its block.
template <typename Locate>
void KernelCall::enter(const void* data, uint8_t use, Locate locate) {
  if ((use & kWrite) != 0) forget_known(data);
  Machine& machine = Machine::get();
  if (!machine.races.on() && !DeviceMemory::any_given()) return;
  std::lock_guard<std::recursive_mutex> held(machine.lock);
  Block* block = DeviceMemory::find(data);
  if (block) DeviceMemory::note_use(*block, stream_);
  if (!machine.races.on()) return;
  Access access = machine.access(stream_, op_, (use & kWrite) != 0, 0, 0);
  access.tick = tick_;
  if (block) {
    locate(access, 0);
    machine.races.enter(block->shadow, access, machine.issue_past(stream_), "device", block->requested);
  } else if (char* start = PinnedAllocator::get().start_of(data)) {
    locate(access, static_cast<size_t>(static_cast<const char*>(data) - start));
    PinnedBlock& pinned = PinnedAllocator::get().block(start);
    machine.races.enter(pinned.shadow, access, machine.issue_past(stream_), "pinned", pinned.bytes);
  }
}

void KernelCall::touch(const at::Tensor& tensor, uint8_t use) {
  if (!tensor.defined() || tensor.numel() == 0) return;
  const void* data = tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
  enter(data, use, [&](Access& access, size_t base) { locate(access, tensor, base); });
}

void KernelCall::touch_bytes(const void* data, size_t bytes, uint8_t use) {
  enter(data, use, [&](Access& access, size_t base) {
    access.begin = base;
    access.end = base + bytes;
  });
}

void KernelCall::check() { Machine::get().races.raise_found(); }

void KernelCall::finish(OpClass op_class, c10::ScalarType dtype, int64_t flops, int64_t bytes) {
  Machine& machine = Machine::get();
  machine.run_kernel(stream_, op_, op_class, machine.model().kernel_ns(op_class, dtype, flops, bytes), bytes);
  machine.races.raise_found();
}

void KernelCall::finish_copy(Direction direction, size_t bytes) {
  Machine::get().run_copy(stream_, op_, direction, bytes);
}

void KernelCall::finish_peer_copy(size_t target, size_t bytes) {
  Machine& machine = Machine::get();
  machine.run_peer_copy(stream_, op_, target, bytes);
  machine.races.raise_found();
}

void hand_over(const void* address, size_t bytes, int64_t stream) {
  Machine& machine = Machine::get();
  std::lock_guard<std::recursive_mutex> held(machine.lock);
  Block* block = DeviceMemory::find(address);
  if (!block) return;
  const size_t index = machine.number_of(stream);
  const OnDevice on(machine.device_of(index));
  DeviceMemory::give(*block, index);
  if (!machine.races.on()) return;
  Access access = machine.access(index, "hand-over", true, 0, bytes);
  ++access.tick;
  machine.races.enter(block->shadow, access, machine.past(index), "device", block->requested);
  machine.races.raise_found();
}

}  // namespace sim
