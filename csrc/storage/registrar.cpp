// CUDA's runtime is looked up where PyTorch has loaded it, so that this file needs neither its headers nor its
// libraries.
#include "storage/registrar.h"

#include <dlfcn.h>

#include <atomic>

namespace bayplan::swap {
namespace {

std::atomic<const HostRegistrar*> foreign{nullptr};

constexpr int kSuccess = 0;
constexpr unsigned kPortable = 1;  // cudaHostRegisterPortable: page-locked for every device of the process

struct CudaRuntime {
  int (*host_register)(void*, size_t, unsigned) = nullptr;
  int (*host_unregister)(void*) = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*last_error)() = nullptr;

  bool complete() const {
    return host_register != nullptr && host_unregister != nullptr && error_string != nullptr && last_error != nullptr;
  }
};

template <typename Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

// A look-up in a library includes those that it needs, so that libcudart's version need not be guessed.
const CudaRuntime& cuda() {
  static const CudaRuntime runtime = [] {
    CudaRuntime found;
    void* library = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);  // null unless PyTorch has loaded it
    if (library == nullptr) return found;
    look_up(library, "cudaHostRegister", found.host_register);
    look_up(library, "cudaHostUnregister", found.host_unregister);
    look_up(library, "cudaGetErrorString", found.error_string);
    look_up(library, "cudaGetLastError", found.last_error);
    return found;
  }();
  return runtime;
}

const char* lock_for_cuda(void* address, size_t bytes) {
  const int code = cuda().host_register(address, bytes, kPortable);
  if (code == kSuccess) return nullptr;
  cuda().last_error();  // else the next call of CUDA's runtime would report it
  return cuda().error_string(code);
}

void unlock_for_cuda(void* address) {
  if (cuda().host_unregister(address) != kSuccess) cuda().last_error();
}

constexpr HostRegistrar kCuda{&lock_for_cuda, &unlock_for_cuda};

}  // namespace

const HostRegistrar* registrar_of(c10::DeviceType type) {
  if (type == c10::DeviceType::PrivateUse1) return foreign.load();
  return type == c10::DeviceType::CUDA && cuda().complete() ? &kCuda : nullptr;
}

void set_registrar(const HostRegistrar* registrar) { foreign.store(registrar); }

}  // namespace bayplan::swap
