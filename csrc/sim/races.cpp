#include "sim/races.h"

#include <c10/util/Exception.h>

#include <sstream>

namespace sim {
namespace {

constexpr size_t kMostRaces = 1000;  // A program without waits would otherwise fill the memory.

void tell(std::ostream& out, const Access& access) {
  out << (access.write ? "write by '" : "read by '") << access.op << "'";
  if (*access.label) out << " [" << access.label << "]";
  out << " (operation " << access.tick << " of stream " << access.stream << ", bytes " << access.begin << "-"
      << access.end << ")";
}

}  // namespace

std::string Race::sentence() const {
  std::ostringstream out;
  out << "race on a " << block << ": ";
  tell(out, second);
  out << " is not ordered after ";
  tell(out, first);
  out << "; let stream " << second.stream << " wait for an event recorded on stream " << first.stream
      << " after the first";
  return out.str();
}

void RaceLog::enter(Shadow& shadow, const Access& access, const VectorClock& past, const char* kind,
                    size_t block_bytes) {
  std::vector<Access> conflicts;
  shadow.enter(access, past, conflicts);
  for (const Access& earlier : conflicts) add(earlier, access, kind, block_bytes);
}

void RaceLog::add(const Access& first, const Access& second, const char* kind, size_t block_bytes) {
  if (found_.size() >= kMostRaces) return;
  found_.push_back({first, second, std::string(kind) + " block of " + std::to_string(block_bytes) + " bytes"});
}

void RaceLog::raise_found() {
  if (mode_ != RaceMode::kRaise || raised_ == found_.size()) return;
  const Race& race = found_[raised_];
  raised_ = found_.size();
  TORCH_CHECK(false, race.sentence());
}

void RaceLog::clear() {
  found_.clear();
  raised_ = 0;
}

}  // namespace sim
