// The flag of a storage that makes reading its address throw: the second net, under the guard.
#pragma once

#include <c10/core/StorageImpl.h>

#include <string>

namespace bayplan::swap {

// From now on a request for the address of the data gets this message instead.
void forbid_reading(c10::StorageImpl& storage, std::string message);
// Call it before the storage gets its data: PyTorch takes note of the change when the data pointer is set.
void allow_reading(c10::StorageImpl& storage);

}  // namespace bayplan::swap
