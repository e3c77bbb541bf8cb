#include "sim/races.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>

#include "sim/machine.h"

namespace sim {
namespace {

constexpr size_t kMostRaces = 1000;  // A program without waits would otherwise fill the memory.

void tell(std::ostream& out, const Access& access) {
  out << (access.write ? "write by '" : "read by '") << access.op << "'";
  if (*access.label) out << " [" << access.label << "]";
  out << " (operation " << access.tick << " of " << Machine::get().stream_name(access.stream) << ", bytes "
      << access.begin << "-" << access.end << ")";
}

// What would order the second access after the first.
std::string remedy(size_t first, size_t second) {
  const Machine& machine = Machine::get();
  const std::string waiter = machine.stream_name(second), waited = machine.stream_name(first);
  const bool in_task = machine.doer_of(second) == Doer::kWorker;
  const std::string wait = in_task ? "let the host task begin after " : "let " + waiter + " wait for ";
  if (machine.doer_of(first) == Doer::kHost) return wait + "what " + waited + " did";
  if (machine.doer_of(first) == Doer::kWorker) return wait + "the event of the host task that did the first";
  return wait + "an event recorded on " + waited + " after the first";
}

bool is_open(const Access& access) { return Machine::get().is_open(access.stream, access.tick); }

}  // namespace

std::string Race::sentence() const {
  std::ostringstream out;
  out << "race on a " << block << ": ";
  tell(out, second);
  out << " is not ordered after ";
  tell(out, first);
  out << "; " << remedy(first.stream, second.stream);
  return out.str();
}

void RaceLog::enter(Shadow& shadow, const Access& access, const VectorClock& past, const char* kind,
                    size_t block_bytes) {
  std::vector<Access> conflicts;
  shadow.enter(access, past, &is_open, conflicts);
  for (const Access& earlier : conflicts) {
    const size_t device = Machine::get().device_of(access.stream);
    Race race{earlier, access, std::string(kind) + " block of " + std::to_string(block_bytes) + " bytes", device};
    if (!is_open(earlier) && !is_open(access))
      add(std::move(race));
    else if (open_.size() < kMostRaces)
      open_.push_back(std::move(race));
  }
}

void RaceLog::judge(size_t stream, uint64_t tick, const VectorClock& past) {
  std::vector<Race> left;
  for (Race& race : open_) {
    const auto is_side = [&](const Access& side) { return side.stream == stream && side.tick == tick; };
    if (!is_side(race.first) && !is_side(race.second)) {
      left.push_back(std::move(race));
      continue;
    }
    const Access& other = is_side(race.first) ? race.second : race.first;
    if (past.of(other.stream) >= other.tick) continue;
    if (is_open(other))
      left.push_back(std::move(race));
    else
      add(std::move(race));
  }
  open_ = std::move(left);
}

void RaceLog::add(Race race) {
  const std::lock_guard<std::mutex> held(guard_);
  if (found_.size() >= kMostRaces) return;
  ++to_raise_[race.device];
  found_.push_back(std::move(race));
}

void RaceLog::raise_found() {
  const size_t device = current_device();
  if (mode_ != RaceMode::kRaise || to_raise_[device] == 0) return;
  std::string sentence;
  {
    const std::lock_guard<std::mutex> held(guard_);
    size_t left = to_raise_[device].exchange(0);
    for (auto race = found_.rbegin(); left > 0 && race != found_.rend(); ++race)
      if (race->device == device && --left == 0) sentence = race->sentence();
  }
  TORCH_CHECK(sentence.empty(), sentence);
}

std::vector<Race> RaceLog::found() const {
  const std::lock_guard<std::mutex> held(guard_);
  return found_;
}

void RaceLog::clear() {
  const std::lock_guard<std::mutex> held(guard_);
  found_.clear();
  open_.clear();
  for (auto& left : to_raise_) left = 0;
}

}  // namespace sim
