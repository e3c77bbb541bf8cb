// A storage in another block of the device.
#include <c10/core/Allocator.h>
#include <c10/core/StreamGuard.h>

#include "profiler/displaced.h"
#include "storage/store.h"

namespace bayplan::swap {
namespace {

// While a storage has two blocks: what is allocated without swapping is one.
class CountedOnce {
 public:
  CountedOnce(c10::Device device, size_t bytes) : device_(device), bytes_(block_bytes(bytes)) {
    displaced_bytes[device_] -= bytes_;
  }
  ~CountedOnce() { displaced_bytes[device_] += bytes_; }
  CountedOnce(const CountedOnce&) = delete;
  CountedOnce& operator=(const CountedOnce&) = delete;

 private:
  c10::Device device_;
  int64_t bytes_;
};

}  // namespace

// The program's other streams know nothing of the copy: a session with such streams moves nothing.
bool Store::move(c10::StorageImpl& storage, c10::Stream home, uintptr_t begin, uintptr_t end) {
  const Lock held(lock);
  const char* reason = why_it_stays(storage);
  TORCH_CHECK(reason == nullptr, "this storage cannot be moved: ", reason);
  const c10::Device device = storage.device();
  const size_t bytes = storage.nbytes();
  if (const auto told = leaving_observer.load()) told(storage);
  const CountedOnce counted(device, bytes);
  const c10::OptionalStreamGuard on(home);
  const Returning returning(bytes);
  c10::DataPtr block = c10::GetAllocator(device.type())->allocate(bytes);
  const auto address = reinterpret_cast<uintptr_t>(block.get());
  if (address < begin || address + bytes > end) {
    block.clear();
    return false;
  }
  void* old = storage._mutable_data_ptr_no_checks().get();
  copy_on(home, bytes_at(block.get(), bytes, device), bytes_at(old, bytes, device));
  storage.set_data_ptr_noswap(std::move(block));
  return true;
}

}  // namespace bayplan::swap
