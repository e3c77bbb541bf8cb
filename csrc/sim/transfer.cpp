#include "sim/transfer.h"

#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/fill.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstring>

#include "sim/alias.h"
#include "sim/copy_on_write.h"
#include "sim/kernel_call.h"
#include "sim/known.h"
#include "sim/pinned.h"
#include "sim/shapes.h"

namespace sim {
namespace {

// Within it, calls on CPU tensors go straight to the CPU kernels: no autograd, autocast, modes or profiler.
class Below {
 public:
  Below()
      : keys_(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
              c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard keys_;
  at::DisableRecordFunctionGuard silent_;
};

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  return a.dtype() == b.dtype() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.is_non_overlapping_and_dense() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

// Where there are shapes only, what the host gets is what is known, or made of the one number that the program reads of
// any other tensor.
// Page-locked memory stays as it is: it is reserved, no more.
void fill_host(const at::Tensor& host, const at::Tensor& device) {
  if (PinnedAllocator::get().owns(host.storage().data())) return;
  if (const auto numbers = known(device)) return move_bytes(*numbers, host);
  Below below;
  host.fill_(item_of(host.scalar_type()));
}

void copy_on_device(const at::Tensor& source, const at::Tensor& target) {
  const OnDevice on(source.device());
  KernelCall kernel("copy", Machine::current_stream());
  kernel.touch(source, kRead);
  kernel.touch(target, kWrite);
  kernel.check();
  if (!shapes_only()) {
    Aliases aliases;
    const at::Tensor from = aliases.enter(source, kRead);
    move_bytes(from, aliases.enter(target, kWrite));
  }
  kernel.finish(OpClass::kCopy, source.scalar_type(), 0, bytes_of(source) + bytes_of(target));
}

// As on CUDA: the copy runs on the current stream of the source's device, behind what the current stream of the
// target's device holds, which goes on behind the copy. The host waits for nothing.
void copy_to_peer(const at::Tensor& source, const at::Tensor& target) {
  const OnDevice on(source.device());
  Machine& machine = Machine::get();
  const auto there = static_cast<size_t>(target.device().index());
  const size_t stream = Machine::current_stream(), far = machine.current_stream(there);
  machine.wait(stream, machine.record(far));
  KernelCall call("copy to peer", stream);
  call.touch(source, kRead);
  call.touch(target, kWrite);
  call.check();
  if (!shapes_only()) move_bytes(cpu_alias(source), cpu_alias(target));
  call.finish_peer_copy(there, static_cast<size_t>(bytes_of(source)));
  machine.wait(far, machine.record(stream));
}

void copy_later(const KernelCall& call, const at::Tensor& source, const at::Tensor& target, char* pinned) {
  PinnedAllocator::get().hold(pinned);
  Machine::get().copies.add(call.stream(), call.tick(), [source, target, pinned] {
    if (!shapes_only()) move_bytes(source, target);
    PinnedAllocator::get().drop(pinned);
  });
}

}  // namespace

// Of tensors that share a storage the kernel knows whether they overlap, and refuses that.
void move_bytes(const at::Tensor& source, const at::Tensor& target) {
  if (same_layout(source, target) && !source.is_alias_of(target)) {
    const size_t bytes = source.numel() * source.itemsize();
    std::memcpy(target.mutable_data_ptr(), source.const_data_ptr(), bytes);
    return;
  }
  Below below;
  target.copy_(source);
}

at::Tensor host_copy(const at::Tensor& tensor) {
  Below below;
  return tensor.clone();
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (target.numel() == 0) return target;
  own_bytes(target);
  const bool from_sim = on_sim(source), to_device = on_sim(target);
  if (from_sim && to_device) {
    source.device() == target.device() ? copy_on_device(source, target) : copy_to_peer(source, target);
    return target;
  }
  const OnDevice on((from_sim ? source : target).device());
  const at::Tensor& host = from_sim ? target : source;
  TORCH_CHECK(host.is_cpu(), "device sim copies to and from the host only, not ", host.device());
  // Under the lock nobody counts references to the program's own tensors: PyTorch takes the GIL for that, and who has
  // the GIL may wait for the lock.
  const at::Tensor from = from_sim ? cpu_alias(source) : unowned_alias(source);
  const at::Tensor to = to_device ? cpu_alias(target) : unowned_alias(target);
  Machine& machine = Machine::get();
  std::lock_guard<std::recursive_mutex> held(machine.lock);
  char* pinned = non_blocking ? PinnedAllocator::get().start_of(host.storage().data()) : nullptr;
  KernelCall call(to_device ? "copy to device" : "copy to host", Machine::current_stream());
  call.touch(source, kRead);
  call.touch(target, kWrite);
  call.check();
  const Direction direction = to_device ? Direction::kToDevice : Direction::kToHost;
  call.finish_copy(direction, static_cast<size_t>(bytes_of(source)));
  if (pinned) {
    copy_later(call, from, to, pinned);
  } else {
    if (!shapes_only())
      move_bytes(from, to);
    else if (from_sim)
      fill_host(to, source);
    else if (!PinnedAllocator::get().owns(host.storage().data()))
      keep_known(target, from);
    machine.host_wait(machine.tail(call.stream()));
  }
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  target.resize_(source.sizes());
  return copy_from(source, target, false);
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  const OnDevice on(tensor.device());
  Machine& machine = Machine::get();
  KernelCall call("item", Machine::current_stream());
  call.touch(tensor, kRead);
  call.check();
  call.finish_copy(Direction::kToHost, static_cast<size_t>(bytes_of(tensor)));
  machine.host_wait(machine.tail(call.stream()));
  Below below;
  if (!shapes_only()) return at::_local_scalar_dense(cpu_alias(tensor));
  const auto number = known(tensor);
  return number ? at::_local_scalar_dense(*number) : item_of(tensor.scalar_type());
}

}  // namespace sim
