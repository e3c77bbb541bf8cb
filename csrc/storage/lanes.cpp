#include "storage/lanes.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>

namespace bayplan::swap {
namespace {

// Within a transform of torch.func every call goes through its layers first, which refuse to write to what they wrap.
const c10::DispatchKeySet kAboveKernels =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset | c10::python_ks |
    c10::DispatchKeySet({c10::DispatchKey::Functionalize, c10::DispatchKey::PreDispatch,
                         c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                         c10::DispatchKey::FuncTorchDynamicLayerBackMode, c10::DispatchKey::FuncTorchVmapMode,
                         c10::DispatchKey::VmapMode});

}  // namespace

const Lanes& lanes_of(c10::Device device) {
  static std::mutex guard;
  static auto* lanes = new std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, Lanes>();
  const std::lock_guard<std::mutex> held(guard);
  const auto key = std::make_pair(device.type(), device.index());
  auto found = lanes->find(key);
  if (found == lanes->end()) {
    const c10::impl::VirtualGuardImpl guard_impl(device.type());
    const c10::Stream out = guard_impl.getStreamFromGlobalPool(device, /*isHighPriority=*/false);
    const c10::Stream in = guard_impl.getStreamFromGlobalPool(device, /*isHighPriority=*/false);
    found = lanes->emplace(key, Lanes{out, in}).first;
  }
  return found->second;
}

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

EventPtr record_on(c10::Stream stream) { return recorded_event(stream, /*timed=*/false); }

at::Tensor bytes_at(void* address, size_t bytes, c10::Device device) {
  return at::for_blob(address, {static_cast<int64_t>(bytes)})
      .options(at::TensorOptions().dtype(at::kByte).device(device))
      .target_device(device)
      .make_tensor();
}

void copy_on(c10::Stream stream, const at::Tensor& to, const at::Tensor& from) {
  const Quiet quiet;
  const c10::OptionalStreamGuard on(stream);
  to.copy_(from, /*non_blocking=*/true);
}

Quiet::Quiet() : plain_(kAboveKernels) {}

}  // namespace bayplan::swap
