// Executes a program on one real training step: counts the operators as they pass the dispatcher and does what the
// table says before and after each. The step decides nothing. Where reality departs from the plan (another operator,
// another tensor) it stops swapping out; what is out already comes back when an operator asks for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "follow/follower.h"
#include "follow/tape.h"
#include "profiler/storages.h"
#include "step/program.h"

namespace bayplan::swap {

enum class Lane : uint8_t { kCompute, kOut, kIn };

struct TimedSpan {
  uint32_t action;
  Lane lane;
  uint32_t begin;  // marks
  uint32_t end;
};

enum class StallCause : uint8_t { kSwapIn, kSwapOut, kOnDemand };

// The compute lane stood still between two marks.
struct Stall {
  StallCause cause;
  uint32_t begin;
  uint32_t end;
};

struct MemorySample {
  uint32_t mark;
  uint64_t bytes;
  uint64_t peak_bytes;  // the most in use so far
};

struct Outcome {
  uint32_t operators = 0;                 // that ran
  uint32_t followed = 0;                  // of these, as planned
  std::optional<std::string> departure;   // the first difference that ended the plan: nothing leaves after it
  std::optional<std::string> difference;  // the first one that did not: another size, a tensor that must stay
  bool failed = false;                    // the departure is an error of the engine's: see `raise_error`
  uint32_t refused = 0;                   // planned swap-outs of storages that cannot leave
  uint32_t postponed = 0;                 // planned swap-ins that found no memory
  uint32_t left_out = 0;                  // still out at the end, for lack of memory
  uint64_t peak_bytes = 0;                // on the device, from `begin` to `end`
  uint64_t host_peak_bytes = 0;
  StoreCounts counts;  // of this step
};

// One at a time on a device: `begin`, the training step, `end`. May be used again.
class Step final : public Follower {
 public:
  // `traced`: mark each operator, copy and wait, and sample the memory in use.
  Step(Program program, c10::Device device, bool traced);
  ~Step() override;

  // The calling thread's current stream becomes the compute lane. Throws if a step or session of the device runs.
  void begin();
  // Brings back whatever is still out, then tells what happened. Never throws for what went wrong inside the step.
  Outcome end();

  double makespan_us() const { return tape_.at_us(last_mark_); }
  const Tape& tape() const { return tape_; }
  const std::vector<TimedSpan>& spans() const { return spans_; }
  const std::vector<Stall>& stalls() const { return stalls_; }
  const std::vector<MemorySample>& memory() const { return memory_; }
  const Program& program() const { return program_; }

  bool begin_frame(const at::RecordFunction& frame) override;
  void end_frame(const at::RecordFunction& frame) override;
  bool needs_results() const override { return true; }
  void demand(c10::StorageImpl& storage) override;
  void hold(c10::StorageImpl& storage) override;

 private:
  using Arrivals = std::vector<std::pair<StoragePtr, c10::DataPtr>>;

  // At the boundaries of counted operators, and at the end of each operator inside one.
  void on_operator(const at::RecordFunction& frame, const OperatorInfo& info);
  void on_operator_end(const at::RecordFunction& frame);
  // Operators of threads that do not work for the step; returns whether this one touches the step's device.
  bool on_foreign_operator(const at::RecordFunction& frame);
  void on_foreign_operator_end();
  void on_nested_end(const at::RecordFunction& frame);
  void on_error() override;
  void reset();
  bool matches(const OperatorInfo& info);
  void meet_other_stream(const at::RecordFunction& frame);
  void note_elsewhere(c10::ArrayRef<c10::IValue> values);
  void locate(const std::vector<Locator>& locators, c10::ArrayRef<c10::IValue> values, const char* where);
  void locate_inner();
  void compare_sizes(const at::RecordFunction& frame);
  void begin_row(const at::RecordFunction& frame);
  void end_row(const at::RecordFunction& frame);
  void release_before(const OpRow& row);
  void act_before(const OpRow& row);
  void act_after(const OpRow& row);
  void release(const Action& action);
  Arrivals allocate(const Action& action);
  void swap_in(const Action& action, Arrivals arrivals);
  void swap_out(const Action& action);
  void wait_for(const std::vector<Wait>& waits, c10::Stream waiter);
  void wait_on_compute(const std::vector<Wait>& waits, StallCause cause);
  // "operator 7 (aten::mul) ", for sentences about the operator that is next.
  std::string here() const;
  void depart(const std::string& how);
  void note_difference(const std::string& how);
  void bring_back();
  void sample_memory(uint32_t mark);
  uint32_t mark(c10::Stream stream) { return traced_ ? tape_.mark(stream) : 0; }
  StoragePtr storage_of(uint32_t slot) const;
  StoragePtr flying(uint32_t slot, Place place) const;
  const char* why_it_stays(uint32_t slot) const;
  uint32_t next() const { return outcome_.followed; }

  Program program_;
  bool traced_;
  Tape tape_;
  std::vector<std::optional<WeakStorage>> slots_;
  std::vector<EventPtr> flights_;              // by slot: the end of its swap-out
  std::vector<EventPtr> done_;                 // by action of the schedule
  std::vector<const OperatorInfo*> known_;     // by row: the operator that its name turned out to mean
  const OpRow* row_ = nullptr;                 // of the operator that runs
  const at::RecordFunction* frame_ = nullptr;  // likewise
  uint32_t row_mark_ = 0;
  StorageSet elsewhere_;         // what operators on other streams used
  StorageSet held_;              // whose address somebody took
  StorageSet inner_;             // of the operator that runs, where the row asks for it
  uint64_t number_ = 0;          // of this run among all steps of the process
  uint32_t open_ = 0;            // outermost operators that run now, on any thread
  Users users_ = Users::kAsker;  // of what comes back on demand
  uint32_t last_mark_ = 0;
  Outcome outcome_;
  std::vector<TimedSpan> spans_;
  std::vector<Stall> stalls_;
  std::vector<MemorySample> memory_;
};

}  // namespace bayplan::swap
