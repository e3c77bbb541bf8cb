#include "follow/relief.h"

#include "follow/frames.h"

namespace bayplan::swap {
namespace {

thread_local bool answering = false;

}  // namespace

bool answer_pressure(size_t /*bytes*/, size_t missing, unsigned attempt) {
  Follower* follower = Follower::active();
  if (follower == nullptr || answering) return false;
  answering = true;
  bool freed = false;
  try {
    freed = (attempt == 0 || wait_for_others()) && follower->relieve(missing, attempt, OpenFrames::of_thread().pins());
  } catch (...) {
    follower->keep_error(std::current_exception());
  }
  answering = false;
  return freed;
}

}  // namespace bayplan::swap
