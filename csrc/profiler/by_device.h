// Something of each accelerator of the process.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace bayplan {

constexpr size_t kPlaces = 128;

// Where a device stands among them: by its index, as a process works with accelerators of one type. A device without an
// index, the CPU, has a place too.
inline size_t place_of(c10::Device device) { return static_cast<uint8_t>(device.index()) % kPlaces; }

template <typename Value>
class ByDevice {
 public:
  Value& operator[](c10::Device device) { return values_[place_of(device)]; }
  Value& at_place(size_t place) { return values_[place]; }

 private:
  std::array<Value, kPlaces> values_{};
};

}  // namespace bayplan
