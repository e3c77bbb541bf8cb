#include "swap/issuer.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace swap {

namespace {

std::vector<int64_t> sums(const std::vector<int64_t>& values) {
  std::vector<int64_t> found{0};
  for (const int64_t value : values) found.push_back(found.back() + value);
  return found;
}

}  // namespace

Issuer::Issuer(Given given)
    : given_(std::move(given)),
      launched_(!given_.host.empty()),
      before_(sums(given_.time)),
      host_before_(sums(given_.host)),
      is_event_(given_.time.size(), 0),
      is_waiting_(given_.time.size(), 0) {
  for (const int64_t op : given_.waiting) is_waiting_[op] = is_event_[op] = 1;
  for (size_t op = 0; op < given_.time.size(); ++op) is_event_[op] |= given_.need[op] > 0;
  if (!launched_) return;
  latest_.emplace_back();
  for (size_t op = 0; op < given_.time.size(); ++op)
    latest_[0].push_back(host_before_[op + 1] + given_.tail[op] - before_[op + 1]);
  for (size_t width = 1; 2 * width <= given_.time.size(); width *= 2) {
    const auto& row = latest_.back();
    std::vector<int64_t> wider;
    for (size_t op = 0; op + width < row.size(); ++op) wider.push_back(std::max(row[op], row[op + width]));
    latest_.push_back(std::move(wider));
  }
}

std::optional<Issued> Issuer::run(std::vector<int64_t> tensors, const std::vector<int64_t>& due, Early early,
                                  int64_t most) {
  if (!begin(tensors, due, early)) return std::nullopt;
  for (size_t place = 0; place < events_.size(); ++place) {
    if (!visit(events_[place]) || least() > most) return std::nullopt;
    if (early != Early::kAnywhere) continue;
    const int64_t following = place + 1 < events_.size() ? events_[place + 1] : given_.time.size();
    for (int64_t idle = soonest(events_[place] + 1, following); idle < following; idle = soonest(idle + 1, following)) {
      const size_t before = next_;
      visit(idle);
      if (next_ == before) break;
      issued_.between = true;
    }
  }
  issued_.makespan = at(given_.time.size()).device;
  return issued_;
}

bool Issuer::begin(std::vector<int64_t>& tensors, const std::vector<int64_t>& due, Early early) {
  const std::vector<int64_t>&need = given_.need, &size = given_.size, &first = given_.first, &last = given_.last;
  for (size_t place = 0; place < tensors.size(); ++place) check(tensors[place], due.empty() ? nullptr : &due[place]);
  early_ = early;
  clocks_ = {0, 0};
  op_ = absent_ = out_free_ = in_free_ = to_return_ = 0;
  next_ = left_ = used_ = done_ = 0;
  issued_ = {};
  queue_.clear();
  events_.clear();
  pending_.clear();
  out_end_.assign(size.size(), kNowhere);
  in_end_.assign(size.size(), 0);
  gone_.assign(size.size(), 0);
  marked_ = is_event_;
  const auto by_use = [&](int64_t one, int64_t two) {
    return last[one] != last[two] ? last[one] < last[two] : size[one] > size[two];
  };
  if (due.empty()) std::stable_sort(tensors.begin(), tensors.end(), by_use);
  for (size_t place = 0; place < tensors.size(); ++place) {
    const int64_t tensor = tensors[place], latest = due.empty() ? last[tensor] : due[place];
    pending_.emplace_back(latest, tensor);
    to_return_ += given_.in_time[tensor];
    marked_[first[tensor]] = marked_[last[tensor]] = marked_[latest] = 1;
  }
  const auto sooner = [](const auto& one, const auto& two) { return one.first < two.first; };
  std::stable_sort(pending_.begin(), pending_.end(), sooner);
  by_first_ = by_last_ = tensors;
  const auto in_order = [](const std::vector<int64_t>& ops) {
    return [&ops](int64_t one, int64_t two) { return ops[one] < ops[two]; };
  };
  std::stable_sort(by_first_.begin(), by_first_.end(), in_order(first));
  std::stable_sort(by_last_.begin(), by_last_.end(), in_order(last));
  for (size_t op = 0; op < need.size(); ++op)
    if (marked_[op]) events_.push_back(op);
  if (early == Early::kNever) return true;
  std::vector<int64_t> slack(need.size() + 1, 0);  // Bytes that may return early: absent ones beyond the need.
  for (const int64_t tensor : tensors) {
    slack[first[tensor] + 1] += size[tensor];
    slack[last[tensor]] -= size[tensor];
  }
  int64_t absent = 0;
  for (size_t op = 0; op < need.size(); ++op) {
    absent += slack[op];
    if (absent < need[op]) return false;
    slack[op] = need[op] > 0 ? absent - need[op] : kNowhere;
  }
  slack_.set(slack);
  return true;
}

// What is no choice of this instance would be looked for beyond the lists' ends.
void Issuer::check(int64_t tensor, const int64_t* due) const {
  const std::string name = "tensor " + std::to_string(tensor);
  if (tensor < 0 || tensor >= static_cast<int64_t>(given_.size.size()))
    throw std::invalid_argument(name + " is none of " + std::to_string(given_.size.size()) + ": give one, from 0");
  const int64_t first = given_.first[tensor] + 1, last = given_.last[tensor];
  if (due && (*due < first || *due > last))
    throw std::invalid_argument(name + " returns before op " + std::to_string(*due) + ": give one of " +
                                std::to_string(first) + " to " + std::to_string(last));
}

// Run all ops up to this one: wait for memory, issue what is due and what may come early, compute, send.
bool Issuer::visit(int64_t op) {
  clocks_ = at(op);
  int64_t now = clocks_.device;
  while (done_ < queue_.size() && out_end_[queue_[done_]] <= now) leave();
  const size_t first_due = next_;
  for (; next_ < pending_.size() && pending_[next_].first <= op; ++next_) {
    const int64_t tensor = pending_[next_].second;
    while (!gone_[tensor]) now = wait(now);
    absent_ -= given_.size[tensor];
  }
  while (absent_ < given_.need[op]) {
    if (done_ == queue_.size()) return false;
    now = wait(now);
  }
  for (size_t place = first_due; place < next_; ++place) issue(pending_[place].second, op, now);
  int64_t arrived = now;
  for (; used_ < by_last_.size() && given_.last[by_last_[used_]] <= op; ++used_)
    arrived = std::max(arrived, in_end_[by_last_[used_]]);
  while (may_issue(op, now, arrived)) {
    const int64_t tensor = pending_[next_++].second;
    absent_ -= given_.size[tensor];
    slack_.add(op, given_.last[tensor], -given_.size[tensor]);
    issue(tensor, op, now);
  }
  clocks_.device = end(op, {arrived, clocks_.host});
  if (launched_) clocks_.host += given_.host[op];
  if (is_waiting_[op]) clocks_.host = std::max(clocks_.host, clocks_.device);
  op_ = op + 1;
  for (; left_ < by_first_.size() && given_.first[by_first_[left_]] <= op; ++left_) {
    const int64_t tensor = by_first_[left_];
    clocks_.host += given_.transfer;
    out_free_ = out_end_[tensor] = std::max({out_free_, clocks_.device, clocks_.host}) + given_.out_time[tensor];
    queue_.push_back(tensor);
  }
  return true;
}

// The first op from this one on before which the next pending tensor may come back, if memory allows it.
int64_t Issuer::soonest(int64_t op, int64_t following) const {
  if (next_ == pending_.size() || out_end_[pending_[next_].second] == kNowhere) return following;
  const int64_t gone_at = out_end_[pending_[next_].second];
  while (op < following) {
    const int64_t middle = (op + following) / 2;
    const Clocks clocks = at(middle);
    if (clocks.device >= gone_at && end(middle, clocks) >= in_free_) {
      following = middle;
    } else {
      op = middle + 1;
    }
  }
  return following;
}

bool Issuer::may_issue(int64_t op, int64_t now, int64_t arrived) {
  if (early_ == Early::kNever || next_ == pending_.size()) return false;
  const int64_t tensor = pending_[next_].second, size = given_.size[tensor], last = given_.last[tensor];
  if (op >= last || op <= given_.first[tensor] || in_free_ > end(op, {arrived, clocks_.host})) return false;
  if (!gone_[tensor] && out_end_[tensor] > now) return false;
  return absent_ - size >= given_.need[op] && slack_.least(op, last) >= size;
}

// When the ops before this one have run: `Launches.advance`.
Issuer::Clocks Issuer::at(int64_t op) const {
  const int64_t device = clocks_.device + before_[op] - before_[op_];
  if (!launched_ || op == op_) return {device, clocks_.host};
  const int level = 63 - __builtin_clzll(static_cast<uint64_t>(op - op_));
  const int64_t late = std::max(latest_[level][op_], latest_[level][op - (int64_t{1} << level)]);
  return {std::max(device, clocks_.host - host_before_[op_] + late + before_[op]),
          clocks_.host + host_before_[op] - host_before_[op_]};
}

int64_t Issuer::end(int64_t op, Clocks clocks) const {
  const int64_t end = clocks.device + given_.time[op];
  return launched_ ? std::max(end, clocks.host + given_.host[op] + given_.tail[op]) : end;
}

// No end of the step is sooner.
int64_t Issuer::least() const {
  return std::max(clocks_.device + before_.back() - before_[op_], in_free_ + to_return_);
}

int64_t Issuer::wait(int64_t now) {
  now = std::max(now, out_end_[queue_[done_]]);
  leave();
  return now;
}

void Issuer::leave() {
  const int64_t tensor = queue_[done_++];
  absent_ += given_.size[tensor];
  gone_[tensor] = 1;
}

void Issuer::issue(int64_t tensor, int64_t op, int64_t now) {
  clocks_.host += given_.transfer;
  to_return_ -= given_.in_time[tensor];
  in_free_ = in_end_[tensor] = std::max({in_free_, now, clocks_.host}) + given_.in_time[tensor];
  issued_.choices.emplace_back(tensor, op);
}

}  // namespace swap
