#include "joint/lanes.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace py = pybind11;

namespace joint {

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 2;  // Later than any step ends (README, model M).

int64_t whole(PyObject* number) {
  const int64_t value = PyLong_AsLongLong(number);
  if (value == -1 && PyErr_Occurred()) throw py::error_already_set();
  return value;
}

PyObject* entry(const py::list& list, int64_t place) { return PyList_GET_ITEM(list.ptr(), place); }

}  // namespace

Lanes::Lanes(std::vector<int64_t> size, std::vector<int64_t> out_time, std::vector<int64_t> in_time,
             std::vector<int64_t> start)
    : size_(std::move(size)),
      out_time_(std::move(out_time)),
      in_time_(std::move(in_time)),
      start_(std::move(start)),
      times_(start_),
      back_at_(size_.size()),
      gone_(size_.size(), 0),
      due_(size_.size(), 0) {}

std::optional<int64_t> Lanes::forward(const Choice& choice, const std::vector<int64_t>& room, int64_t spare,
                                      int64_t until) {
  return pass(choice, room, spare, until, false);
}

std::optional<int64_t> Lanes::all(const Choice& choice, std::vector<int64_t> room, int64_t spare) {
  issue(choice, room);
  return pass(choice, room, spare, static_cast<int64_t>(size_.size()), true);
}

int64_t Lanes::keep(size_t early) {
  start_ = times_;
  std::vector<int64_t> stages;
  for (const auto& [at, away] : issued_) stages.push_back(at);
  std::sort(stages.begin(), stages.end());
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  return stages.empty() ? 0 : stages[stages.size() / early];
}

// As late as it is in time by the stages' last known times, the last one first; later where memory has no room.
void Lanes::issue(const Choice& choice, std::vector<int64_t>& room) {
  for (const auto& [at, away] : issued_) back_at_[at].clear();
  issued_.clear();
  int64_t lane = kNever;
  for (int64_t b = static_cast<int64_t>(size_.size()) - 1; b >= 0; --b) {
    PyObject* const read = entry(choice.returns, b);
    for (Py_ssize_t place = PyList_GET_SIZE(read) - 1; place >= 0; --place) {
      PyObject* const gap = PyList_GET_ITEM(read, place);
      const int64_t a = whole(PyTuple_GET_ITEM(gap, 0)), i = whole(PyTuple_GET_ITEM(gap, 1));
      lane = std::min(lane, start_[b]) - in_time_[i];
      const auto first = start_.begin() + a + 2, last = start_.begin() + b + 1;
      const int64_t wanted = std::upper_bound(first, last, lane) - start_.begin() - 1;
      int64_t at = b;
      while (at > wanted && room[at - 1] >= size_[i]) room[--at] -= size_[i];
      lane = std::max(lane, start_[at]);
      issued_.emplace_back(at, Away{i, a, b});
      back_at_[at].push_back({i, a, b});
    }
  }
}

std::optional<int64_t> Lanes::pass(const Choice& choice, const std::vector<int64_t>& room, int64_t spare, int64_t until,
                                   bool returning) {
  int64_t now = 0, waited = 0, in_use = 0;
  size_t done = 0;
  out_free_ = in_free_ = 0;
  leaving_.clear();
  if (returning) std::fill(due_.begin(), due_.end(), 0);
  std::vector<int64_t> times;
  times.reserve(until);
  for (int64_t t = 0; t < until; ++t) {
    const int64_t before = now;
    if (returning)
      for (const Away& away : back_at_[t]) now = std::max(now, gone_[away.op]);
    for (; in_use > room[t]; ++done) {
      now = std::max(now, leaving_[done].first);
      in_use -= leaving_[done].second;
    }
    if (returning) {
      for (auto away = back_at_[t].rbegin(); away != back_at_[t].rend(); ++away)
        due_[away->read_at] = in_free_ = std::max(in_free_, now) + in_time_[away->op];
      now = std::max(now, due_[t]);
    }
    const bool alone = !choice.talking.empty() && choice.talking[t];
    if (alone) now = std::max({now, out_free_, in_free_});
    waited += now - before;
    if (waited > spare) return std::nullopt;
    times.push_back(now);
    now += whole(entry(choice.ticks, t));
    if (alone) out_free_ = in_free_ = now;
    const size_t known = leaving_.size();
    if (PyList_GET_SIZE(entry(choice.leaves, t)) > 0) send(choice, t, now);
    for (size_t place = known; place < leaving_.size(); ++place) in_use += leaving_[place].second;
  }
  if (returning) times_ = std::move(times);
  return now;
}

// What leaves behind a stage, first what is read first.
void Lanes::send(const Choice& choice, int64_t stage, int64_t now) {
  PyObject* const left = entry(choice.leaves, stage);
  std::vector<std::pair<int64_t, int64_t>> order;
  for (Py_ssize_t place = 0; place < PyList_GET_SIZE(left); ++place) {
    const int64_t i = whole(PyList_GET_ITEM(left, place));
    const bool is_only = PyList_GET_SIZE(left) == 1;
    order.emplace_back(is_only ? 0 : choice.away[py::make_tuple(i, stage)].cast<int64_t>(), i);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [read, i] : order) {
    out_free_ = gone_[i] = std::max(out_free_, now) + out_time_[i];
    leaving_.emplace_back(out_free_, size_[i]);
  }
}

}  // namespace joint
