// Host memory of as many bytes as were asked for, in whole grains, so that a block which ends in the last one lies
// within what is page-locked; as one piece, and given back to the system.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>

#include "storage/free_ranges.h"
#include "storage/registrar.h"

namespace bayplan::swap {

class HostArena {
 public:
  // Null where the system has no such memory or it cannot be page-locked; `why` then says so. To make one and to let
  // one go, the host waits for the device.
  static std::unique_ptr<HostArena> make(size_t bytes, const HostRegistrar& registrar, std::string* why);
  // No copy uses it any more.
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  char* at(size_t offset) const { return static_cast<char*>(address_) + offset; }
  size_t bytes() const { return bytes_; }

  FreeRanges ranges;
  uint64_t idle_since = 0;  // by order of return

 private:
  HostArena(void* address, size_t bytes, const HostRegistrar& registrar)
      : ranges(bytes), address_(address), bytes_(bytes), registrar_(registrar) {}

  void* const address_;
  const size_t bytes_;
  const HostRegistrar registrar_;
};

}  // namespace bayplan::swap
