#include "follow/threads.h"

#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <string_view>
#include <type_traits>

namespace bayplan::swap {
namespace {

struct Mark : c10::DebugInfoBase {
  explicit Mark(uint64_t step) : step(step) {}
  uint64_t step;
};

constexpr std::string_view kName = "BAYPLAN_SWAP_STEP";

// A slot of our own: torch 2.11 numbers the slots, later releases tell them apart by an address.
template <typename Kind>
constexpr Kind own_slot() {
  if constexpr (std::is_enum_v<Kind>) {
    return static_cast<Kind>(0xB5);
  } else {
    return Kind(&kName);
  }
}
constexpr auto kSlot = own_slot<c10::DebugInfoKind>();

}  // namespace

void join_step(uint64_t step) { c10::ThreadLocalDebugInfo::_push(kSlot, std::make_shared<Mark>(step)); }

void leave_step(uint64_t step) {
  // Slots are a stack: where something else lies on top (a profiler that outlives the step), the mark stays below it,
  // of a step that is over.
  if (joined_step() != step) return;
  try {
    c10::ThreadLocalDebugInfo::_pop(kSlot);
  } catch (const c10::Error&) {
  }
}

uint64_t joined_step() {
  const c10::DebugInfoBase* mark = c10::ThreadLocalDebugInfo::get(kSlot);
  return mark == nullptr ? 0 : static_cast<const Mark*>(mark)->step;
}

}  // namespace bayplan::swap
