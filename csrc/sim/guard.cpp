#include "sim/guard.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <thread>

#include "sim/autograd.h"
#include "sim/device_memory.h"
#include "sim/machine.h"

namespace sim {
namespace {

struct Event {
  Point point;
};

Machine& machine() { return Machine::get(); }

size_t index_of(const c10::Stream& stream) { return machine().number_of(stream.id()); }

c10::Stream stream_of(size_t index) {
  return c10::Stream(c10::Stream::UNSAFE, sim_device(machine().device_of(index)), machine().id_of(index));
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kSim; }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }
  c10::Device getDevice() const override { return sim_device(); }
  c10::Device exchangeDevice(c10::Device device) const override {
    return sim_device(exchange_device(device_at(device.index())));
  }
  void setDevice(c10::Device device) const override { exchange_device(device_at(device.index())); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) exchange_device(static_cast<size_t>(device.index()));
  }
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    check_index(device.index());
    return {};
  }

  c10::Stream getStream(c10::Device device) const override {
    const size_t index = device_at(device.index());
    follow_sequence();
    return stream_of(machine().current_stream(index));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_of(machine().default_stream(device_at(device.index())));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high_priority*/) const override {
    return stream_of(machine().new_stream(device_at(device.index())));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return stream_of(machine().new_stream(device_at(device.index())));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const size_t index = index_of(stream);
    follow_thread_count();
    follow_sequence();
    return stream_of(machine().exchange_stream(index));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(static_cast<uintptr_t>(stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    return machine().host_query(machine().tail(index_of(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    const size_t index = index_of(stream);
    machine().await_comms(index);
    machine().host_wait(machine().tail(index), kForStream);
    machine().races.raise_found();
  }
  void synchronizeDevice(c10::DeviceIndex device) const override { synchronize_device(device_at(device)); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    DeviceMemory::get().recordStream(data, stream);
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    if (!*event) *event = new Event();
    static_cast<Event*>(*event)->point = machine().record(index_of(stream));
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) machine().wait(index_of(stream), static_cast<Event*>(event)->point);
  }
  bool queryEvent(void* event) const override {
    return !event || machine().host_query(static_cast<Event*>(event)->point);
  }
  void synchronizeEvent(void* event) const override {
    if (event) machine().host_wait(static_cast<Event*>(event)->point, kForStream);
    machine().races.raise_found();
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex /*device*/) const override {
    TORCH_CHECK(first && second, "elapsed time needs two recorded events: record both on a stream first");
    const Point &from = static_cast<Event*>(first)->point, &to = static_cast<Event*>(second)->point;
    return static_cast<double>(machine().time_of(to) - machine().time_of(from)) * 1e-6;
  }

 private:
  // The autograd engine's device thread keeps the thread count that it began with; CPU kernels split sums by that
  // count, so that set_num_threads after the first backward would change last bits. The engine sets the stream of every
  // node here.
  void follow_thread_count() const {
    if (std::this_thread::get_id() != registrar_) at::init_num_threads();
  }
  const std::thread::id registrar_ = std::this_thread::get_id();
};

}  // namespace

void synchronize_device(size_t device) {
  const OnDevice on(device);
  machine().await_comms_of(device);
  machine().host_wait_all();
  machine().races.raise_found();
}

void register_guard() { c10::impl::DeviceGuardImplRegistrar registrar(kSim, new Guard()); }

}  // namespace sim
