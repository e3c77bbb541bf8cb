#include "sim/collectives.h"

#include <utility>

#include "sim/alias.h"
#include "sim/copy_on_write.h"
#include "sim/kernel_call.h"
#include "sim/known.h"
#include "sim/shapes.h"
#include "sim/transfer.h"

namespace sim {
namespace {

// What comes after a member's part comes after it and after all that came before any part.
std::vector<Point> ends_of(const std::vector<size_t>& streams, const std::vector<PendingComm>& parts, Nanoseconds end) {
  VectorClock all;
  for (const PendingComm& part : parts) all.join(part.past);
  std::vector<Point> ends;
  for (size_t i = 0; i < streams.size(); ++i) {
    Point point = Machine::get().tail(streams[i]);
    point.time = end;
    point.past = all;
    point.past.raise(streams[i], parts[i].tick);
    ends.push_back(std::move(point));
  }
  return ends;
}

}  // namespace

void set_comm_waiter(std::function<void(size_t device)> waiter) { Machine::get().comm_waiter = std::move(waiter); }

Nanoseconds issue_comm(size_t stream, const std::vector<at::Tensor>& reads, const std::vector<at::Tensor>& writes,
                       const char* op) {
  Machine& machine = Machine::get();
  const OnDevice on(machine.device_of(stream));
  for (const at::Tensor& tensor : writes) own_bytes(tensor);
  KernelCall call(op, stream);
  for (const at::Tensor& tensor : reads) call.touch(tensor, kRead);
  for (const at::Tensor& tensor : writes) call.touch(tensor, kWrite);
  call.check();
  return machine.issue_comm(stream, call.tick(), op);
}

std::vector<Point> finish_comm(const std::vector<size_t>& streams, const char* op, Span span, int64_t bytes,
                               const std::vector<CommMove>& moves) {
  // Tensors that Python knows are counted outside of the lock (copy_from says why).
  std::vector<std::pair<at::Tensor, at::Tensor>> late;
  for (const CommMove& move : moves) {
    if (shapes_only())
      keep_known(move.target, move.source);  // At once: what is not waited for is a race all the same.
    else
      late.emplace_back(cpu_alias(move.target), host_copy(move.source));
  }
  Machine& machine = Machine::get();
  std::lock_guard<std::recursive_mutex> held(machine.lock);
  const std::vector<PendingComm> parts = machine.finish_comm(streams, op, span, bytes);
  for (size_t i = 0; i < late.size(); ++i) {
    const size_t member = moves[i].member;
    machine.copies.add(streams[member], parts[member].tick,
                       [pair = std::move(late[i])] { move_bytes(pair.second, pair.first); });
  }
  machine.settle_overtaken(streams, parts);
  return ends_of(streams, parts, span.end);
}

void wait_for_stream(size_t waiter, size_t waited) {
  Machine& machine = Machine::get();
  machine.wait(waiter, machine.record(waited));
}

}  // namespace sim
