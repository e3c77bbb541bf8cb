// Which tape a thread records on, and how the dispatcher, observers and autograd come to it.
#include "recompute/recorder.h"

#include <mutex>

#include "recompute/calls.h"
#include "recompute/hooks.h"

namespace bayplan::recompute {

__thread Recording* known_recording = nullptr;

Recording& make_recording() {
  thread_local Recording own;
  known_recording = &own;
  return own;
}

void now_known(Recording& own, bool tape_is_there) {
  for (Packed* packed : own.unknown) {
    if (tape_is_there) packed->resolve(own.tape);
    packed->wait_no_more();
  }
  own.unknown.clear();
}

void pause_before(const at::RecordFunction& frame) {
  const Recording& own = recording();
  if (!own.listens() || !own.tape->pauses()) return;
  const Recipe* recipe = find_recipe(frame);
  if (recipe == nullptr) return;
  const Recipe::Telling tells = recipe->tells_host(frame.inputs());
  if (tells == Recipe::Telling::kPlainly || (tells == Recipe::Telling::kGathered && !own.tape->gathers())) return;
  if (is_transparent(*recipe, frame.inputs(), own.tape->device())) return;
  const NotRecording quiet;
  own.tape->pause();
}

namespace {

struct OpenNode final : at::ObserverContext {
  explicit OpenNode(uint64_t of) : number(of) {}
  const uint64_t number;
};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& frame) {
  Recording& own = recording();
  if (!own.listens()) return nullptr;
  if (!c10::impl::tls_is_dispatch_key_excluded(kRecording)) return nullptr;  // the dispatcher tells of it
  const Recipe* recipe = find_recipe(frame);
  if (recipe == nullptr || is_transparent(*recipe, frame.inputs(), own.tape->device())) return nullptr;
  auto open = std::make_unique<OpenNode>(own.number);
  begin_operator(own, *recipe, each_argument(frame.inputs()));
  return open;
}

void on_end(const at::RecordFunction& frame, at::ObserverContext* context) {
  if (context == nullptr) return;
  end_operator(recording(), static_cast<OpenNode*>(context)->number, each_result(frame.outputs()));
}

void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  Recording& own = recording();
  if (!own.listens()) {
    const c10::impl::ExcludeDispatchKeyGuard what_it_calls(kRecording);
    return op.redispatchBoxed(keys & kBelow, stack);
  }
  const auto run = [&] { op.redispatchBoxed(keys & kBelow, stack); };
  const c10::FunctionSchema& schema = op.schema();
  const c10::ArrayRef<c10::IValue> inputs = torch::jit::last(*stack, schema.arguments().size());
  const Recipe* recipe = find_recipe(op);
  if (recipe == nullptr || is_transparent(*recipe, inputs, own.tape->device())) {
    const TakenApart apart(own, inputs);
    return run();
  }
  Recorded recorded(own, *recipe, each_argument(inputs));
  recorded.call(run);
  recorded.end(each_result(torch::jit::last(*stack, schema.returns().size())));
}

// Once a process, before the first recording.
void enter_dispatcher() {
  static auto* entered = new std::vector<c10::RegistrationHandleRAII>();  // until exit: other threads may still run
  static std::once_flag once;
  std::call_once(once, [] {
    auto& dispatcher = c10::Dispatcher::singleton();
    entered->push_back(dispatcher.registerFallback(kRecording, c10::KernelFunction::makeFromBoxedFunction<&on_call>(),
                                                   "bayplan: the recorder of tapes"));
    enter_typed(*entered);
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op.has_value() || name.name.compare(0, 6, "aten::") != 0 || !is_never_recorded(*op)) continue;
      entered->push_back(dispatcher.registerImpl(name, kRecording, c10::KernelFunction::makeFallthrough(), std::nullopt,
                                                 nullptr, "bayplan: never recorded"));
    }
  });
}

}  // namespace

Observed::Observed(Recording& own) : own_(own), begins_(!own.observed) {
  if (!begins_) return;
  own_.observed = true;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(on_start, on_end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

Observed::~Observed() {
  if (!begins_) return;
  at::removeCallback(handle_);
  own_.observed = false;
}

Tape* recording_tape() {
  const Recording& own = recording();
  return own.stopped > 0 ? nullptr : own.tape.get();
}

bool inside_node() { return recording().in_operator; }

NotRecording::NotRecording() { ++recording().stopped; }
NotRecording::~NotRecording() { --recording().stopped; }
bool NotRecording::on() { return recording().stopped > 0; }

void start_recording(std::shared_ptr<Tape> tape) {
  Recording& own = recording();
  TORCH_CHECK(own.tape == nullptr, "another tape is recording on this thread: end it first, or make the regions one");
  enter_dispatcher();
  tape->begin();
  own.tape = std::move(tape);
  ++own.number;
  begin_hooks();
  c10::impl::tls_set_dispatch_key_included(kRecording, true);
}

bool stop_recording() {
  Recording& own = recording();
  if (own.tape == nullptr) return false;
  c10::impl::tls_set_dispatch_key_included(kRecording, false);
  end_hooks();
  own.in_operator = false;
  now_known(own, /*tape_is_there=*/false);
  const std::shared_ptr<Tape> tape = std::move(own.tape);
  own.tape = nullptr;
  tape->end();
  return true;
}

void hold_idle_recorder(bool hold) {
  TORCH_CHECK(recording().tape == nullptr, "a tape is recording on this thread: end it first");
  enter_dispatcher();
  c10::impl::tls_set_dispatch_key_included(kRecording, hold);
}

void pack(Packed& packed, const at::Tensor& tensor) {
  Recording& own = recording();
  const bool recorded = own.tape != nullptr && own.stopped == 0;
  const c10::Storage* storage = recorded ? plain_storage_on(own.tape->device(), tensor) : nullptr;
  packed.hold(tensor);
  if (storage == nullptr) return packed.known();
  ValueIndex value = kNone;
  if (!own.in_operator) {
    value = own.tape->find(storage);
  } else if (!own.it_writes) {
    value = own.tape->look_up(storage);
  }
  if (value != kNone) return packed.become(own.tape, value);
  if (!own.in_operator || (!own.it_writes && own.tape->is_given(*storage))) return packed.known();
  packed.wait_among(own.unknown);  // the operator may be the one that makes it
}

}  // namespace bayplan::recompute
