#include "follow/demand.h"

#include <algorithm>
#include <string>

#include "storage/reading.h"

namespace bayplan::swap {
namespace {

void bring_in(c10::StorageImpl& storage) {
  try {
    if (Follower* follower = Follower::active(storage.device())) return follower->demand(storage);
    Store::of(storage.device()).ensure_in(storage, Users::kAnyStream);
  } catch (const std::exception& error) {  // the operator will find the storage out, and say why
    const std::string reason = std::string(error.what()).substr(0, std::string(error.what()).find('\n'));
    forbid_reading(storage,
                   "this tensor's storage is swapped out to the host "
                   "and could not be brought back: " +
                       reason);
    throw;
  }
}

// Most operators meet nothing that is out, so what kind of operator it is, is asked last.
void bring_in_if_out(c10::StorageImpl& storage, const at::RecordFunction& frame) {
  if (Store::entry_of(storage) == nullptr) return;
  const OperatorInfo* info = find_operator(frame);
  if (info != nullptr && touches_data(*info)) bring_in(storage);
}

}  // namespace

void bring_in_if_out(c10::StorageImpl& storage) {
  if (Store::entry_of(storage) == nullptr) return;
  guarded(Follower::active(storage.device()), [&] { bring_in(storage); });
}

std::atomic<bool> look_always{false};

bool touches_data(const OperatorInfo& info) {
  return info.counted || std::find(info.writes.begin(), info.writes.end(), true) != info.writes.end() ||
         info.name == "aten::record_stream" || info.name == "aten::is_set_to";
}

void bring_in_arguments(const at::RecordFunction& frame) {
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!tensor.unsafeGetTensorImpl()->has_storage()) return;
      c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
      if (storage == nullptr || Store::entry_of(*storage) == nullptr) return;
      guarded(Follower::active(storage->device()), [&] { bring_in_if_out(*storage, frame); });
    });
  }
}

void bring_in_pinned(const at::RecordFunction& frame, const OpenFrames& own) {
  for (size_t place = own.first(); place < own.pins().size(); ++place) bring_in_if_out(*own.pins()[place], frame);
}

}  // namespace bayplan::swap
