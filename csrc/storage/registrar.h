// Who page-locks memory that this process has got by itself, so that a device copies to and from it asynchronously.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>

namespace bayplan::swap {

// Functions of a device's runtime. Its host allocator knows nothing of such memory: what PyTorch's copies tell it
// (`record_event`) it declines without a word, so whoever registers memory keeps it until the copies have ended.
struct HostRegistrar {
  // Null where the bytes are page-locked now; else why not, in words that live on.
  const char* (*lock)(void* address, size_t bytes);
  // No copy uses them any more.
  void (*unlock)(void* address);
};

// The one of devices of that type, or null: there memory is page-locked by PyTorch's host allocator only.
const HostRegistrar* registrar_of(c10::DeviceType type);
// That of the foreign accelerator, `PrivateUse1`; null takes it back.
void set_registrar(const HostRegistrar* registrar);

}  // namespace bayplan::swap
