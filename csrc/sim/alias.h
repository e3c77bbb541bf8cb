// Two faces of one memory: a tensor of device sim, and the CPU tensor over the same bytes that CPU kernels work on; or,
// where there are shapes only, the tensor of device meta that shape functions work on.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/flat_hash_map.h>

#include <optional>

#include "sim/machine.h"

namespace sim {

// While it lives, CPU allocations of this thread come from the device's memory, as a device kernel's would.
class InKernel {
 public:
  InKernel();
  ~InKernel();
  InKernel(const InKernel&) = delete;
  InKernel& operator=(const InKernel&) = delete;
  static c10::Allocator* allocator();  // The CPU allocator that knows about it.

 private:
  bool outer_;
};

// While it lives, this thread is back on the host's side of a kernel that it is in.
class OutsideKernel {
 public:
  OutsideKernel();
  ~OutsideKernel();
  OutsideKernel(const OutsideKernel&) = delete;
  OutsideKernel& operator=(const OutsideKernel&) = delete;

 private:
  bool inside_;
};

inline bool on_sim(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kSim; }

// A CPU tensor over the bytes of a tensor of sim. Throws if the storage's memory was taken away.
at::Tensor cpu_alias(const at::Tensor& tensor);
// A CPU tensor over a storage of so many bytes, seen as `like` sees its own.
at::Tensor alias_over(void* data, size_t bytes, const at::Tensor& like);
// The same for making views, which touch no byte: the memory may be away.
at::Tensor shape_alias(const at::Tensor& tensor);
// The same for a host tensor whose memory another owner keeps alive.
at::Tensor unowned_alias(const at::Tensor& tensor);
// A tensor of device meta that looks like a tensor of sim.
at::Tensor meta_alias(const at::Tensor& tensor);

// The aliases of one kernel's operands, and the way back from its results.
class Aliases {
 public:
  struct Operand {
    at::Tensor sim;
    at::Tensor cpu;  // Or of device meta.
    uint8_t use;     // Bits of Use.
  };
  // The alias of an operand; tensors of other devices pass through. Operands of one storage get aliases of one storage,
  // so that kernels see where what they write overlaps what they read, and refuse it. `touched`: not only viewed.
  at::Tensor enter(const at::Tensor& tensor, uint8_t use, bool touched = true);
  // Carries what the kernel did to its operands' storage and shape back to them (out=, resizes, shared bytes written).
  void write_back();
  // Whether an operand's bytes are shared, so that a kernel that writes them in spite of its schema got its own.
  bool any_shared() const { return any_shared_; }
  // The tensor of sim for a result: the operand itself, a view of one, or the stolen memory of a fresh tensor.
  at::Tensor leave(const at::Tensor& result);
  const c10::SmallVectorImpl<Operand>& operands() const { return operands_; }
  // Whether a tensor of sim lies in an operand's storage.
  bool holds(const at::Tensor& tensor) const {
    return find(by_sim_storage_, tensor.storage().unsafeGetStorageImpl()) != nullptr;
  }

 private:
  // Finds an operand by one of its addresses. Most calls have a handful of operands, a foreach call hundreds.
  class Index {
   public:
    void add(const void* key, size_t operand);
    std::optional<size_t> find(const void* key) const;

   private:
    static constexpr size_t kFew = 8;
    c10::SmallVector<const void*, kFew> few_;
    ska::flat_hash_map<const void*, size_t> many_;
  };
  const Operand* find(const Index& index, const void* key) const;
  // A sparse operand, and the parts that its alias had at first.
  struct SparseOperand {
    at::Tensor sim;
    at::Tensor cpu;
    at::Tensor indices;
    at::Tensor values;
  };
  at::Tensor enter_sparse(const at::Tensor& tensor, uint8_t use);
  at::Tensor leave_sparse(const at::Tensor& result);
  void write_back_sparse();
  at::Tensor touching_alias(const at::Tensor& tensor);
  c10::Storage steal(const c10::Storage& storage);

  c10::SmallVector<Operand, 8> operands_;
  c10::SmallVector<SparseOperand, 1> sparse_operands_;
  bool any_shared_ = false;
  Index by_sim_, by_cpu_;                  // Tensors of sim, their aliases.
  Index by_sim_storage_, by_cpu_storage_;  // Their storages; the first operand of each.
  c10::SmallVector<std::pair<c10::StorageImpl*, c10::Storage>, 4> stolen_;
};

}  // namespace sim
