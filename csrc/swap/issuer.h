// When the swap-ins of a set of tensors are issued, and how long the step then takes.
//
// Number for number `_State` of solvers/swap/issue.py, which says why.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "swap/range_min.h"

namespace swap {

// `Instance` of solvers/swap/evaluate.py; `host`, `tail` and `waiting` are empty where launching costs nothing.
struct Given {
  std::vector<int64_t> time, need;                            // By op.
  std::vector<int64_t> size, first, last, out_time, in_time;  // By tensor.
  std::vector<int64_t> host, tail, waiting;                   // By op; the ops whose end the host waits for.
  int64_t transfer = 0;
};

constexpr int64_t kNowhere = int64_t{1} << 62;

// Issued before they are due: never, where memory is short or a swapped tensor is used, or wherever the lane idles.
enum class Early { kNever, kAtEvents, kAnywhere };

struct Issued {
  std::vector<std::pair<int64_t, int64_t>> choices;  // Tensors and ops, in order.
  int64_t makespan = 0;
  bool between = false;  // Whether any was issued where neither memory is short nor a swapped tensor is used.
};

class Issuer {
 public:
  explicit Issuer(Given given);

  // For each of `tensors` the op at which it is issued at the latest: `due`, or its use where that is empty. Nothing
  // where memory does not fit, or the step is seen to take more than `most`. Throws std::invalid_argument for what is
  // no tensor, or an op at which it cannot be issued.
  std::optional<Issued> run(std::vector<int64_t> tensors, const std::vector<int64_t>& due, Early early, int64_t most);

 private:
  struct Clocks {
    int64_t device, host;
  };

  void check(int64_t tensor, const int64_t* due) const;
  bool begin(std::vector<int64_t>& tensors, const std::vector<int64_t>& due, Early early);
  bool visit(int64_t op);
  int64_t soonest(int64_t op, int64_t following) const;
  bool may_issue(int64_t op, int64_t now, int64_t arrived);
  Clocks at(int64_t op) const;
  int64_t end(int64_t op, Clocks clocks) const;
  int64_t least() const;
  int64_t wait(int64_t now);
  void leave();
  void issue(int64_t tensor, int64_t op, int64_t now);

  const Given given_;
  const bool launched_;
  std::vector<int64_t> before_, host_before_;
  std::vector<std::vector<int64_t>> latest_;  // `Launches.latest` of solvers/swap/launches.py.
  std::vector<char> is_event_, is_waiting_;

  // Of one run.
  Early early_ = Early::kNever;
  Clocks clocks_{0, 0};
  int64_t op_ = 0, absent_ = 0, out_free_ = 0, in_free_ = 0, to_return_ = 0;
  std::vector<std::pair<int64_t, int64_t>> pending_;  // When due, and the tensor.
  std::vector<int64_t> by_first_, by_last_, queue_, events_, out_end_, in_end_;
  std::vector<char> gone_, marked_;
  size_t next_ = 0, left_ = 0, used_ = 0, done_ = 0;
  RangeMin slack_;
  Issued issued_;
};

}  // namespace swap
