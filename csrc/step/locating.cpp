// How a step finds the storages that its plan moves, and compares them with the profile's.
#include "profiler/storages.h"
#include "step/step.h"

namespace bayplan::swap {
namespace {

// 4096 as "4,096".
std::string with_commas(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t place = text.size(); place > 3;) text.insert(place -= 3, ",");
  return text;
}

// The storages on the device among an operator's arguments or results, with their index: the profiler's inputs and
// outputs. What stands in for data that was never there is none.
template <typename Visit>
void for_each_storage(c10::Device device, c10::ArrayRef<c10::IValue> values, const Visit& visit) {
  uint32_t position = 0;
  for (const c10::IValue& value : values) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      const c10::Storage* found = storage_on(device, tensor);
      c10::StorageImpl* storage = found == nullptr ? nullptr : found->unsafeGetStorageImpl();
      const bool stand_in = storage != nullptr && storage->nbytes() > 0 &&
                            storage->_mutable_data_ptr_no_checks().get() == nullptr &&
                            Store::entry_of(*storage) == nullptr;
      if (storage != nullptr && !stand_in) visit(position++, *found);
    });
  }
}

}  // namespace

void Step::locate(const std::vector<Locator>& locators, c10::ArrayRef<c10::IValue> values, const char* where) {
  if (locators.empty()) return;
  auto wanted = locators.begin();  // in order of position
  for_each_storage(device_, values, [&](uint32_t position, const c10::Storage& storage) {
    for (; wanted != locators.end() && wanted->position == position; ++wanted) {
      const Slot& slot = program_.slots[wanted->slot];
      if (storage.nbytes() != slot.bytes) {
        depart("has " + with_commas(storage.nbytes()) + " bytes as " + where + " " + std::to_string(position) +
               " where its profile had " + with_commas(slot.bytes));
      }
      slots_[wanted->slot] = storage.getWeakStorageImpl();
    }
  });
  if (wanted != locators.end()) {
    depart("has no " + std::string(where) + " " + std::to_string(wanted->position) + ", where its profile had " +
           with_commas(program_.slots[wanted->slot].bytes) + " bytes");
  }
}

// Some operators keep what they do not return: dropout its mask, cross-entropy its log-probabilities.
void Step::locate_inner() {
  for (const Locator& locator : row_->inner) {
    const auto storage = inner_.at(locator.position);
    const uint64_t expected = program_.slots[locator.slot].bytes;
    if (storage == nullptr || storage->nbytes() != expected) {
      const std::string kept = storage == nullptr ? "nothing" : with_commas(storage->nbytes()) + " bytes";
      return depart("keeps " + kept + " where its profile kept " + with_commas(expected) + " bytes");
    }
    slots_[locator.slot] = WeakStorage(storage);
  }
}

// A result of another size does not end the plan, as swapping on needs less memory than stopping. But where memory then
// does not suffice, this is why.
void Step::compare_sizes(const at::RecordFunction& frame) {
  if (row_->sizes.empty() || outcome_.difference.has_value()) return;
  auto expected = row_->sizes.begin();
  for_each_storage(device_, frame.outputs(), [&](uint32_t position, const c10::Storage& storage) {
    if (expected == row_->sizes.end() || expected->position != position) return;
    if (storage.nbytes() != expected->bytes) {
      note_difference("gives " + with_commas(storage.nbytes()) + " bytes where its profile gave " +
                      with_commas(expected->bytes));
    }
    ++expected;
  });
}

}  // namespace bayplan::swap
