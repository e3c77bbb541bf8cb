#include "storage/host_arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace bayplan::swap {

std::unique_ptr<HostArena> HostArena::make(size_t bytes, const HostRegistrar& registrar, std::string* why) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    *why = std::strerror(errno);
    return nullptr;
  }
  const char* refused = registrar.lock(address, bytes);
  if (refused != nullptr) {
    *why = refused;
    munmap(address, bytes);
    return nullptr;
  }
  return std::unique_ptr<HostArena>(new HostArena(address, bytes, registrar));
}

HostArena::~HostArena() {
  registrar_.unlock(address_);
  munmap(address_, bytes_);
}

}  // namespace bayplan::swap
