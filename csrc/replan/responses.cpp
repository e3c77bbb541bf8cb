#include "replan/responses.h"

#include <algorithm>
#include <array>

namespace replan {

namespace {

constexpr size_t kBytes = 64;   // So many bytes are added and compared together.
constexpr size_t kSpread = 64;  // So many entries, spread over both rows, are compared before all are.
template <class T>
constexpr size_t kTogether = kBytes / sizeof(T);
template <class T>
using Lanes = std::array<T, kTogether<T>>;
template <class T>
constexpr T kNoPath = sizeof(T) == 4 ? -(T{1} << 29) : -(T{1} << (8 * sizeof(T) - 4));  // No path.

template <class T>
void add(Lanes<T>& to, const Lanes<T>& some) {
  for (size_t lane = 0; lane < kTogether<T>; ++lane) to[lane] += some[lane];
}

// The later of what is known and `first` + `then`.
template <class T>
void later(Lanes<T>& known, const Lanes<T>& first, const Lanes<T>& then) {
  for (size_t lane = 0; lane < kTogether<T>; ++lane) {
    const T both = first[lane] + then[lane];
    known[lane] = known[lane] < both ? both : known[lane];
  }
}

template <class T>
bool less_somewhere(const T* one, const T* other, size_t width) {
  size_t at = 0;
  for (; at + kTogether<T> <= width; at += kTogether<T>) {
    int found = 0;
    for (size_t lane = 0; lane < kTogether<T>; ++lane) found |= one[at + lane] < other[at + lane];
    if (found != 0) return true;
  }
  for (; at < width; ++at)
    if (one[at] < other[at]) return true;
  return false;
}

}  // namespace

template <class T>
void respond(const T* behind, size_t number, size_t m, size_t k, const T* forward, const T* backward, T hop,
             T* response) {
  const size_t fill = std::min(k - 1, m);
  std::vector<Lanes<T>> free(m), back(m), ahead(m * m), returns(behind == nullptr ? 0 : m * m);
  Lanes<T> sends{}, answers{}, hops;
  hops.fill(2 * hop);
  for (size_t start = 0; start < number; start += kTogether<T>) {
    const size_t some = std::min(kTogether<T>, number - start);
    for (size_t lane = 0; lane < some; ++lane) {
      sends[lane] = forward[start + lane];
      answers[lane] = backward[start + lane];
      for (size_t at = 0; at < returns.size(); ++at) returns[at][lane] = behind[(start + lane) * m * m + at];
    }
    for (Lanes<T>& one : free) one.fill(kNoPath<T>);
    for (size_t step = 0; step < m + fill; ++step) {
      if (step < m) {
        free[step].fill(0);  // Forward `step` arrives; before it arrives nothing is heard of it.
        for (size_t from = 0; from <= step; ++from) {
          add<T>(free[from], sends);
          ahead[step * m + from] = free[from];
        }
      }
      if (step < fill) continue;
      const size_t batch = step - fill, heard = std::min(step + 1, m);
      if (behind == nullptr)
        for (size_t from = 0; from <= batch; ++from) later<T>(free[from], ahead[batch * m + from], Lanes<T>{});
      else {
        const size_t sent = std::min(batch + k - 1, m);
        for (size_t from = 0; from < sent; ++from) back[from].fill(kNoPath<T>);
        for (size_t pass = 0; pass < sent; ++pass)
          for (size_t from = 0; from <= pass; ++from)
            later<T>(back[from], returns[batch * m + pass], ahead[pass * m + from]);
        for (size_t from = 0; from < sent; ++from) later<T>(free[from], back[from], hops);
      }
      for (size_t from = 0; from < heard; ++from) add<T>(free[from], answers);
      for (size_t lane = 0; lane < some; ++lane)
        for (size_t from = 0; from < m; ++from) response[((start + lane) * m + batch) * m + from] = free[from][lane];
    }
  }
}

template <class T>
std::vector<int64_t> undominated(const int64_t* groups, const T* rows, size_t width, const int64_t* rank,
                                 const std::vector<int64_t>& order) {
  std::vector<T> few(order.size() * kSpread);
  for (size_t number = 0; number < order.size(); ++number)
    for (size_t at = 0; at < kSpread; ++at)
      few[number * kSpread + at] = rows[static_cast<size_t>(order[number]) * width + at * (width - 1) / (kSpread - 1)];
  std::vector<char> gone(order.size(), 0);
  std::vector<int64_t> kept;
  for (size_t number = 0; number < order.size(); ++number) {
    if (gone[number] != 0) continue;
    const auto best = static_cast<size_t>(order[number]);
    kept.push_back(order[number]);
    for (size_t next = number + 1; next < order.size(); ++next) {
      const auto other = static_cast<size_t>(order[next]);
      if (groups[other] != groups[best]) break;
      gone[next] = gone[next] != 0 || !((rank != nullptr && rank[other] < rank[best]) ||
                                        less_somewhere(&few[next * kSpread], &few[number * kSpread], kSpread) ||
                                        less_somewhere(rows + other * width, rows + best * width, width));
    }
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

template void respond(const int32_t*, size_t, size_t, size_t, const int32_t*, const int32_t*, int32_t, int32_t*);
template void respond(const int64_t*, size_t, size_t, size_t, const int64_t*, const int64_t*, int64_t, int64_t*);
template std::vector<int64_t> undominated(const int64_t*, const int32_t*, size_t, const int64_t*,
                                          const std::vector<int64_t>&);
template std::vector<int64_t> undominated(const int64_t*, const int64_t*, size_t, const int64_t*,
                                          const std::vector<int64_t>&);

}  // namespace replan
