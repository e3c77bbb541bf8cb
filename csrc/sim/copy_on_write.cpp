#include "sim/copy_on_write.h"

#include <c10/core/impl/COW.h>
#include <c10/core/impl/COWDeleter.h>

#include <cstring>

#include "sim/alias.h"
#include "sim/kernel_call.h"
#include "sim/shapes.h"

namespace sim {

namespace cow = c10::impl::cow;

// PyTorch gives up the storage's share before it allocates, and would give it up again when the storage dies: where
// there is no memory the share is taken back.
void own_bytes(const at::Tensor& tensor) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  if (!shares_bytes(storage)) return;
  const OnDevice on(storage.device());
  c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  auto* share = data.cast_context<cow::COWDeleterContext>(cow::cow_deleter);
  try {
    storage.mutable_data();
  } catch (...) {
    if (share) share->increment_refcount();
    throw;
  }
}

c10::Storage sharing_alias(c10::StorageImpl& storage) {
  const auto share = cow::lazy_clone_storage(storage);
  TORCH_CHECK(share, "device sim cannot share the bytes of a storage whose memory is not its allocator's: clone it");
  c10::DataPtr data = std::move(share->_mutable_data_ptr_no_checks());
  data.unsafe_set_device(c10::Device(c10::kCPU));
  c10::Storage alias(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data), InKernel::allocator(),
                     /*resizable=*/true);
  alias.unsafeGetStorageImpl()->set_materializer(&cow::materialize_cow);
  return alias;
}

void replace_bytes(c10::StorageImpl& storage, c10::DataPtr data, size_t bytes) {
  storage.clear_materializer();
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
}

void copy_shared_bytes(void* to, const void* from, size_t bytes) {
  Machine& machine = Machine::get();
  KernelCall kernel("copy on write", Machine::current_stream());
  kernel.touch_bytes(from, bytes, kRead);
  kernel.touch_bytes(to, bytes, kWrite);
  if (!shapes_only()) std::memcpy(to, from, bytes);
  const auto moved = static_cast<int64_t>(2 * bytes);
  const auto duration = machine.model().kernel_ns(OpClass::kCopy, c10::ScalarType::Byte, 0, moved);
  machine.run_kernel(kernel.stream(), "copy on write", OpClass::kCopy, duration, moved);
}

}  // namespace sim
