#include "storage/host_arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "storage/waits.h"

namespace bayplan::swap {

std::unique_ptr<HostArena> HostArena::make(size_t bytes, const HostRegistrar& registrar, std::string* why) {
  note_wait(Awaited::kPageLocking);
  const size_t whole = FreeRanges::in_grains(bytes);
  void* address = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    *why = std::strerror(errno);
    return nullptr;
  }
  const char* refused = registrar.lock(address, whole);
  if (refused != nullptr) {
    *why = refused;
    munmap(address, whole);
    return nullptr;
  }
  return std::unique_ptr<HostArena>(new HostArena(address, bytes, registrar));
}

HostArena::~HostArena() {
  note_wait(Awaited::kPageLocking);
  registrar_.unlock(address_);
  munmap(address_, FreeRanges::in_grains(bytes_));
}

}  // namespace bayplan::swap
