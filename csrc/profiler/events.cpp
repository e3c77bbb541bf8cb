#include "profiler/events.h"

#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

namespace bayplan {
namespace {

using Key = std::tuple<c10::DeviceType, c10::DeviceIndex, bool>;
using Events = std::vector<std::unique_ptr<c10::Event>>;

struct Pool {
  std::mutex lock;
  std::map<Key, Events> idle;
  uint64_t made = 0;
};

Pool& pool() {
  static auto* pool = new Pool();  // never destroyed: events may outlive static destructors
  return *pool;
}

std::unique_ptr<c10::Event> take(const Key& key) {
  {
    const std::lock_guard<std::mutex> held(pool().lock);
    Events& idle = pool().idle[key];
    if (!idle.empty()) {
      auto event = std::move(idle.back());
      idle.pop_back();
      return event;
    }
    ++pool().made;
  }
  // The default flag is without timing.
  const auto flag = std::get<2>(key) ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT;
  return std::make_unique<c10::Event>(std::get<0>(key), flag);
}

// The last owner lets go: an event that was recorded anew is another's, whoever waits for the old record.
EventPtr owned(std::unique_ptr<c10::Event> event, const Key& key) {
  return EventPtr(event.release(), [key](c10::Event* done) {
    std::unique_ptr<c10::Event> kept(done);
    const std::lock_guard<std::mutex> held(pool().lock);
    pool().idle[key].push_back(std::move(kept));
  });
}

Key key_of(c10::Stream stream, bool timed) { return {stream.device_type(), stream.device_index(), timed}; }

}  // namespace

EventPtr recorded_event(c10::Stream stream, bool timed) {
  const Key key = key_of(stream, timed);
  EventPtr event = owned(take(key), key);
  event->record(stream);
  return event;
}

void prepare_timed_events(c10::Stream stream, size_t count) {
  std::vector<EventPtr> ready;  // recorded once, since only then the device makes them
  ready.reserve(count);
  for (size_t made = 0; made < count; ++made) ready.push_back(recorded_event(stream, true));
}

uint64_t events_made() {
  const std::lock_guard<std::mutex> held(pool().lock);
  return pool().made;
}

}  // namespace bayplan
