// CUDA's caching allocator asks its registered callbacks before it takes new memory from the driver. Their interface is
// restated here, so that this file needs neither CUDA's headers nor its libraries; the registry is looked up at run
// time.
#include <c10/util/Registry.h>
#include <dlfcn.h>

#include <memory>
#include <string>

#include "follow/relief.h"

namespace c10 {
// As in c10/cuda/CUDACachingAllocator.h, where it is called with the allocator's (recursive) lock held.
struct FreeMemoryCallback {
  virtual ~FreeMemoryCallback() = default;
  virtual bool Execute() = 0;
};
}  // namespace c10

namespace bayplan::swap {
namespace {

using Callbacks = c10::Registry<std::string, std::unique_ptr<c10::FreeMemoryCallback>>;

constexpr char kRegistry[] = "_ZN3c1031FreeCudaMemoryCallbacksRegistryB5cxx11Ev";
// The allocator asks on every request that its cache cannot serve, long before the device is full, and does not say how
// much it lacks: so this keeps room for one more storage as large as the largest. What cannot be freed at once is freed
// before the next operator, which that room lasts until.
class Relief final : public c10::FreeMemoryCallback {
 public:
  bool Execute() override { return answer_under_lock(); }
};

}  // namespace

bool listen_to_cuda() {
  static const bool listening = [] {
    void* library = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);  // null unless PyTorch has loaded it
    void* accessor = library == nullptr ? nullptr : dlsym(library, kRegistry);
    if (accessor == nullptr) return false;
    auto* registry = reinterpret_cast<Callbacks* (*)()>(accessor);
    registry()->Register("bayplan", [] { return std::unique_ptr<c10::FreeMemoryCallback>(new Relief()); });
    return true;
  }();
  return listening;
}

}  // namespace bayplan::swap
