// What a plan does to a storage.
#pragma once

#include <cstdint>

namespace bayplan::swap {

enum class ActionKind : uint8_t { kRelease, kSwapIn, kSwapOut };

}  // namespace bayplan::swap
