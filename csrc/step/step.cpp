#include "step/step.h"

#include <atomic>
#include <utility>

#include "follow/demand.h"
#include "follow/frames.h"
#include "follow/guard.h"
#include "follow/threads.h"
#include "profiler/storages.h"

namespace bayplan::swap {
namespace {

std::atomic<uint64_t> steps_begun{0};

}  // namespace

Step::Step(Program program, c10::Device device, bool traced)
    : Follower(Kind::kStep, device), program_(std::move(program)), traced_(traced) {}

Step::~Step() {
  if (is_active()) end();
}

// ---- beginning and end ----------------------------------------------------------------------------------------------

void Step::begin() {
  const Lock held(store_.lock);
  const Follower* other = active(device_);
  TORCH_CHECK(other == nullptr || other->kind() != Kind::kStep,
              "a swap schedule is being executed already: end that step first");
  TORCH_CHECK(other == nullptr, "a swap session is active: close it before a schedule is executed");
  reset();
  number_ = ++steps_begun;
  compute_.set(current_stream(device_));
  begin_counting();
  tape_.mark(*compute_);
  forget_frames(device_);  // before anybody knows of the step, so that no thread enters it with an old place
  join_step(number_);
  follow_from(std::this_thread::get_id());
  set_active(this);
  renew_guard();
}

void Step::reset() {
  tape_.rewind();
  slots_.assign(program_.slots.size(), std::nullopt);
  flights_.assign(program_.slots.size(), nullptr);
  done_.assign(program_.actions, nullptr);
  known_.resize(program_.rows.size(), nullptr);
  row_ = nullptr;
  frame_ = nullptr;
  inner_.clear();
  elsewhere_.clear();
  held_.clear();
  open_ = 0;
  users_ = Users::kAsker;
  last_mark_ = 0;
  outcome_ = Outcome();
  forget_error();
  spans_.clear();
  stalls_.clear();
  memory_.clear();
}

Outcome Step::end() {
  const Lock held(store_.lock);
  if (!is_active()) return outcome_;
  set_active(nullptr);
  leave_step(number_);
  try {
    outcome_.peak_bytes = static_cast<uint64_t>(allocated().peak);
    last_mark_ = tape_.mark(*compute_);
    bring_back();
    for (uint32_t mark = 0; mark < tape_.size(); ++mark) tape_.wait(mark);  // on whichever streams they are
  } catch (...) {
    keep_error(std::current_exception());
  }
  slots_.clear();
  flights_.clear();
  done_.clear();
  outcome_.host_peak_bytes = store_.host().stats().peak_held_bytes;
  outcome_.counts = take_counts();
  renew_guard();
  return outcome_;
}

// A plan brings everything back in time; this is for plans that were wrong and steps that failed.
void Step::bring_back() {
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    const auto storage = storage_of(slot);
    if (storage == nullptr) continue;
    try {
      store_.ensure_in(*storage, Users::kAnyStream);
    } catch (const c10::OutOfMemoryError&) {
      ++outcome_.left_out;  // the guard stays on and tries again when the tensor is used
    }
  }
}

void Step::on_error() {
  outcome_.failed = !outcome_.departure.has_value();
  depart("made the swap engine fail");
}

// ---- following the operators ----------------------------------------------------------------------------------------

bool Step::begin_frame(const at::RecordFunction& frame) {
  guarded(this, [&] {
    ThreadPlace& thread = thread_place(device_);
    if (thread.tracker.enter(frame) != Frame::kOutermost) return;
    if (joined_step() == number_) {
      on_operator(frame, *thread.tracker.current());
    } else {
      thread.foreign = on_foreign_operator(frame);
    }
  });
  if (anything_out()) bring_in_arguments(frame);
  return true;
}

void Step::end_frame(const at::RecordFunction& frame) {
  ThreadPlace& thread = thread_place(device_);
  const Frame place = thread.tracker.leave(frame);
  if (place == Frame::kNested && guard_has_results() && joined_step() == number_) on_nested_end(frame);
  if (place != Frame::kOutermost) return;
  if (std::exchange(thread.foreign, false)) {
    on_foreign_operator_end();
  } else if (joined_step() == number_) {
    on_operator_end(frame);
  }
}

void Step::on_operator(const at::RecordFunction& frame, const OperatorInfo& info) {
  const Lock held(store_.lock);
  ++open_;
  ++outcome_.operators;
  if (compute_.is_elsewhere()) meet_other_stream(frame);
  if (outcome_.departure.has_value() || next() == program_.rows.size()) return;
  if (row_ != nullptr) {
    depart("runs on a second thread while another operator runs");
  } else if (matches(info)) {
    begin_row(frame);
  }
}

void Step::on_operator_end(const at::RecordFunction& frame) {
  const Lock held(store_.lock);
  if (open_ > 0) --open_;
  if (&frame != frame_) return;
  if (!outcome_.departure.has_value()) end_row(frame);
  row_ = nullptr;
  frame_ = nullptr;
  inner_.clear();
}

bool Step::on_foreign_operator(const at::RecordFunction& frame) {
  bool here = false;
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) { here = here || storage_on(device_, tensor) != nullptr; });
  }
  const Lock held(store_.lock);
  open_ += here ? 1 : 0;
  if (here && compute_.is_elsewhere()) meet_other_stream(frame);
  return here;
}

void Step::note_elsewhere(c10::ArrayRef<c10::IValue> values) {
  for (const c10::IValue& value : values) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (const c10::Storage* storage = storage_on(device_, tensor)) elsewhere_.place(*storage);
    });
  }
}

// The program orders that stream behind what made a tensor, not behind the copies that bring it back: from now on the
// host waits for those. What such an operator uses stays: the compute stream does not know when it is done with it.
void Step::meet_other_stream(const at::RecordFunction& frame) {
  note_elsewhere(frame.inputs());
  if (std::exchange(users_, Users::kAnyStream) == Users::kAsker) await(*record_on(lanes_of(device_).in));
}

void Step::on_foreign_operator_end() {
  const Lock held(store_.lock);
  if (open_ > 0) --open_;
}

void Step::on_nested_end(const at::RecordFunction& frame) {
  const Lock held(store_.lock);
  if (row_ == nullptr || row_->inner.empty()) return;
  for (const c10::IValue& value : frame.outputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (const c10::Storage* storage = storage_on(device_, tensor)) inner_.place(*storage);
    });
  }
}

bool Step::matches(const OperatorInfo& info) {
  const OpRow& row = program_.rows[next()];
  const OperatorInfo*& known = known_[next()];
  if (known != &info) {
    if (info.name != row.name) {
      depart("is " + info.name + " in this step");
      return false;
    }
    known = &info;
  }
  return true;
}

void Step::begin_row(const at::RecordFunction& frame) {
  const OpRow& row = program_.rows[next()];
  locate(row.arguments, frame.inputs(), "argument");
  if (outcome_.departure.has_value()) return;
  row_ = &row;
  frame_ = &frame;
  act_before(row);
  if (compute_.is_elsewhere()) return;  // the guard brings in what it uses, for its stream
  wait_on_compute(row.waits, StallCause::kSwapIn);
  for (const uint32_t slot : row.arrivals) {
    if (const auto storage = flying(slot, Place::kComing)) store_.install(*storage);
  }
  row_mark_ = mark(*compute_);
}

void Step::end_row(const at::RecordFunction& frame) {
  const OpRow& row = *row_;
  if (traced_) {
    const uint32_t now = mark(*compute_);
    spans_.push_back({row.id, Lane::kCompute, row_mark_, now});
    if (row.returns || !row.inner.empty()) sample_memory(now);  // others leave the memory in use as it was
  }
  if (row.awaited) done_[row.id] = record_on(*compute_);
  const bool threw = frame.outputs().empty() && frame.num_outputs() > 0;
  if (threw && row.returns) return;  // not so in the profile: the program may try again, or end
  if (compute_.is_elsewhere()) note_elsewhere(frame.outputs());
  locate(row.results, frame.outputs(), "result");
  locate_inner();
  if (outcome_.departure.has_value()) return;
  compare_sizes(frame);
  act_after(row);
  ++outcome_.followed;
  if (next() < program_.rows.size()) release_before(program_.rows[next()]);
}

std::string Step::here() const {
  std::string place = "operator " + std::to_string(next());
  if (next() < program_.rows.size()) place += " (" + program_.rows[next()].name + ")";
  return place + " ";
}

void Step::depart(const std::string& how) {
  if (!outcome_.departure.has_value()) outcome_.departure = here() + how;
}

void Step::note_difference(const std::string& how) {
  if (!outcome_.difference.has_value()) outcome_.difference = here() + how;
}

StoragePtr Step::storage_of(uint32_t slot) const {
  return slots_.at(slot).has_value() ? slots_[slot]->lock() : StoragePtr();
}

// The slot's storage if it is out because this slot's swap-out sent it out, and has got to that place. A wrong plan may
// have two slots find one storage; each then acts on its own swap-out only, since it waits for nothing else.
StoragePtr Step::flying(uint32_t slot, Place place) const { return out_since(storage_of(slot), flights_[slot], place); }

}  // namespace bayplan::swap
