#include "sim/collectives.h"

#include <utility>

#include "sim/alias.h"
#include "sim/copy_on_write.h"
#include "sim/kernel_call.h"
#include "sim/shapes.h"
#include "sim/transfer.h"

namespace sim {

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

void finish_comm(const std::vector<size_t>& streams, const char* op, Span span, int64_t bytes,
                 const std::vector<CommMove>& moves) {
  // Tensors that Python knows are counted outside of the lock (copy_from says why).
  std::vector<std::pair<at::Tensor, at::Tensor>> late;
  if (!shapes_only())
    for (const CommMove& move : moves) late.emplace_back(cpu_alias(move.target), host_copy(move.source));
  Machine& machine = Machine::get();
  std::lock_guard<std::recursive_mutex> held(machine.lock);
  const std::vector<PendingComm> parts = machine.finish_comm(streams, op, span, bytes);
  for (size_t i = 0; i < late.size(); ++i) {
    const size_t member = moves[i].member;
    machine.copies.add(streams[member], parts[member].tick,
                       [pair = std::move(late[i])] { move_bytes(pair.second, pair.first); });
  }
  machine.settle_overtaken(streams, parts);
}

void wait_for_stream(size_t waiter, size_t waited) {
  Machine& machine = Machine::get();
  machine.wait(waiter, machine.record(waited));
}

}  // namespace sim
