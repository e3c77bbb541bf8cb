#include "session/timeline.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

namespace bayplan::swap {
namespace {

// The same for all timelines of a device, as the pool of streams is small.
c10::Stream idle_stream(c10::Device device) {
  static std::mutex guard;
  static auto* streams = new std::vector<c10::Stream>();
  const std::lock_guard<std::mutex> held(guard);
  for (const c10::Stream& stream : *streams) {
    if (stream.device() == device) return stream;
  }
  const c10::impl::VirtualGuardImpl of_type(device.type());
  return streams->emplace_back(of_type.getStreamFromGlobalPool(device, /*isHighPriority=*/false));
}

}  // namespace

Timeline::Timeline(c10::Stream compute) : idle_(idle_stream(compute.device())) {
  const uint32_t begin = tape_.mark(compute);
  records_.push_back({false, 0, 0, tape_.mark(idle_), begin});
}

void Timeline::end_operator(c10::Stream compute) {
  const uint32_t host = tape_.mark(idle_);
  records_.push_back({false, 0, 0, host, tape_.mark(compute)});
}

void Timeline::begin_engine(c10::Stream compute) {
  if (depth_++ > 0) return;
  engine_begin_ = tape_.mark(idle_);
  engine_begin_compute_ = tape_.mark(compute);
}

void Timeline::end_engine(c10::Stream compute) {
  if (--depth_ > 0) return;
  try {
    const uint32_t host = tape_.mark(idle_);
    records_.push_back({true, engine_begin_, engine_begin_compute_, host, tape_.mark(compute)});
  } catch (const std::exception&) {  // what cannot be marked is not counted; an error may be on its way already
  }
}

double Timeline::without_swapping_us() const {
  for (uint32_t mark = 0; mark < tape_.size(); ++mark) tape_.wait(mark);
  double stream = 0, host = tape_.at_us(records_.front().host);
  double replayed_stream = stream, replayed_host = host;
  double engine_us = 0, waited_until = stream;
  double host_work = 0;
  double took_before = 0;  // by what the operator queued before the engine made its stream wait
  for (const Record& record : records_) {
    const double now = tape_.at_us(record.host), end = tape_.at_us(record.compute);
    if (record.engine) {
      const double begin = tape_.at_us(record.host_begin);
      took_before += std::max(0.0, tape_.at_us(record.compute_begin) - std::max({stream, waited_until, begin}));
      engine_us += now - begin;
      waited_until = end;
      continue;
    }
    const double work = std::max(0.0, now - host - engine_us);
    if (end <= now && now > stream) {  // the host has waited for the operator, or has nothing to be ahead of
      replayed_host = std::max(replayed_host, replayed_stream) + std::min(work, now - stream);
      host_work += std::min(work, now - stream);
    } else {
      replayed_host += work;
      host_work += work;
    }
    const double took = std::max(0.0, end - std::max({stream, waited_until, now}));
    replayed_stream = std::max(replayed_stream, replayed_host) + took + std::exchange(took_before, 0.0);
    stream = end;
    host = now;
    engine_us = 0;
  }
  return std::max(replayed_stream, host_work);  // else one that swapped much before had left the host far ahead
}

}  // namespace bayplan::swap
