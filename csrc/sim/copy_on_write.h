// Storages that share their bytes until one of them is written (`torch._lazy_clone`).
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace sim {

// Whether the storage's bytes are another one's too.
inline bool shares_bytes(const c10::StorageImpl& storage) { return storage.has_materializer(); }

// Gives a tensor's storage bytes of its own, as PyTorch does before a write; the device copies them, unless nobody else
// has them any more.
void own_bytes(const at::Tensor& tensor);

// A storage for the CPU's kernels over the same bytes, which gets its own at the first write.
c10::Storage sharing_alias(c10::StorageImpl& storage);

// Puts other bytes into a storage of sim, which shares none from now on.
void replace_bytes(c10::StorageImpl& storage, c10::DataPtr data, size_t bytes);

// The copy that PyTorch asks the allocator for, on the current stream. Races that it is part of are raised by the next
// operator: PyTorch has given up its share of the bytes by then, and must not be interrupted.
void copy_shared_bytes(void* to, const void* from, size_t bytes);

}  // namespace sim
