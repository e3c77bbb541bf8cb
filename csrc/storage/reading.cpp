#include "storage/reading.h"

#include <torch/headeronly/version.h>

namespace bayplan::swap {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 12
namespace {

// torch 2.11 can raise the flag but not lower it. Explicit instantiations may name private members, so this one hands
// out a reference to the flag.
bool& flag_of(c10::StorageImpl& storage);

template <bool c10::StorageImpl::* Flag>
struct Reveal {
  friend bool& flag_of(c10::StorageImpl& storage) { return storage.*Flag; }
};
template struct Reveal<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

}  // namespace

void allow_reading(c10::StorageImpl& storage) {
  flag_of(storage) = false;
  storage.get_extra_meta().custom_data_ptr_error_msg_ = std::nullopt;
}
#else
void allow_reading(c10::StorageImpl& storage) { storage.clear_data_ptr_access_error_msg_(); }
#endif

void forbid_reading(c10::StorageImpl& storage, std::string message) {
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(message));
}

}  // namespace bayplan::swap
