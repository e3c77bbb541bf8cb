// One call of an operator that comes to the recorder: with its arguments in a list (recorder.cpp), or as C++ has them
// (typed.cpp).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "recompute/recipe.h"
#include "recompute/recorder.h"
#include "recompute/tape.h"

namespace bayplan::recompute {

constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kRecording);

// What the thread records, and the operator that it is in.
struct Recording {
  std::shared_ptr<Tape> tape;
  uint64_t number = 0;  // of the tape, among those of the thread
  bool in_operator = false;
  bool it_writes = false;        // the operator writes arguments, or may
  bool observed = false;         // an observer stands in for the dispatcher
  std::vector<Packed*> unknown;  // saved while the operator runs, which may be what made them
  int stopped = 0;

  bool listens() const { return tape != nullptr && !in_operator && stopped == 0; }
};

// What was saved in an operator that has ended is told which value it is, if any; not where the tape is gone.
void now_known(Recording& own, bool tape_is_there);

// The calling thread's. An address that needs no making is found in fewer steps than an object that does.
extern __thread Recording* known_recording;
Recording& make_recording();
inline Recording& recording() { return known_recording != nullptr ? *known_recording : make_recording(); }

// The operator begins: the tape's next node, to which `add_arguments` gives what it is called with.
template <typename AddArguments>
void begin_operator(Recording& own, const Recipe& recipe, const AddArguments& add_arguments) {
  own.in_operator = true;  // also for what beginning a node calls
  own.it_writes = recipe.may_write;
  try {
    own.tape->open_node(recipe);
    add_arguments(*own.tape);
    own.tape->begin_node();
  } catch (...) {
    own.in_operator = false;
    throw;
  }
}
// The operator of that tape has ended, or thrown: then it has no results, and may have written.
template <typename AddResults>
void end_operator(Recording& own, uint64_t number, const AddResults& add_results) {
  own.in_operator = false;
  const bool still_there = own.tape != nullptr && own.number == number;
  if (still_there) {
    own.tape->close_node();
    add_results(*own.tape);
    own.tape->end_node();
  }
  if (!own.unknown.empty()) now_known(own, still_there);
}

// With arguments, or results, in a list.
inline auto each_argument(c10::ArrayRef<c10::IValue> inputs) {
  return [inputs](Tape& tape) {
    for (const c10::IValue& value : inputs) tape.add_argument(value);
  };
}
inline auto each_result(c10::ArrayRef<c10::IValue> results) {
  return [results](Tape& tape) {
    for (size_t place = 0; place < results.size(); ++place)
      tape.add_results(static_cast<int32_t>(place), results[place]);
  };
}

// A call that is a node.
class Recorded {
 public:
  template <typename AddArguments>
  Recorded(Recording& own, const Recipe& recipe, const AddArguments& add_arguments)
      : own_(own), number_(own.number), what_it_calls_(kRecording) {
    begin_operator(own, recipe, add_arguments);
  }
  template <typename Operator>
  decltype(auto) call(const Operator& run) {
    try {
      return run();
    } catch (...) {
      end([](Tape& /*tape*/) {});
      throw;
    }
  }
  template <typename AddResults>
  void end(const AddResults& add_results) {
    end_operator(own_, number_, add_results);
  }

 private:
  Recording& own_;
  const uint64_t number_;
  const c10::impl::ExcludeDispatchKeyGuard what_it_calls_;
};

// While a tensor subclass (DTensor) takes an operator apart, PyTorch leaves out all keys above Python's, the recorder's
// among them: an observer of the thread tells of what it calls.
class Observed {
 public:
  explicit Observed(Recording& own);
  ~Observed();
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  Recording& own_;
  const bool begins_;
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
};

// A call that is none: what it calls may be.
class TakenApart {
 public:
  TakenApart(Recording& own, c10::ArrayRef<c10::IValue> inputs) {
    if (has_subclass(inputs)) observed_.emplace(own);
  }

 private:
  std::optional<Observed> observed_;
};

// A kernel of the recorder's own for each of PyTorch's most common operators; what it registers lives there.
void enter_typed(std::vector<c10::RegistrationHandleRAII>& entered);

}  // namespace bayplan::recompute
