// What kernels take of the device's memory for themselves while they run, beside their results.
//
// Where numbers are real, the CPU's kernels allocate it, and `Watch` sees how much. Where there are shapes only, nobody
// runs them: a table of rules says how much it would have been (runtime/device/temporaries.py makes it).
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/util/flat_hash_map.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/op_info.h"

namespace sim {

// Rows, inner and columns of a matrix product; of several at once those of one. `turned`: the left operand lies column
// by column.
struct ProductShape {
  int64_t rows, inner, columns;
  bool turned;
};

// What a kernel's temporaries may depend on: who it is (name, data types, layouts, switches, a power's exponent) and
// how large its tensors are, in bytes: arguments first, then results; those of a list are summed. A product's three
// numbers come last.
struct CallShape {
  std::string signature;
  std::vector<int64_t> sizes;
  std::optional<ProductShape> product;
};

// The bytes are the sum of `factor * size / divisor` over the terms, each rounded up to whole blocks of the allocator.
// Where that is not exact, calls of these very sizes were measured, and of others the sum is an estimate; where it is
// but a constant, no estimate: the nearest measured sizes then say more. Of products in half precision the blocks that
// oneDNN cuts them into are known (`blocks`): they are scaled by what the nearest one took.
struct TemporaryTerm {
  size_t size;  // Place in CallShape::sizes; kConstantTerm: 1.
  int64_t factor;
  int64_t divisor;
};
constexpr size_t kConstantTerm = static_cast<size_t>(-1);
struct TemporaryRule {
  std::vector<TemporaryTerm> terms;
  std::map<std::vector<int64_t>, size_t> exact;
  bool constant() const;
  // Of the measured sizes those nearest to these, and what they took; none where nothing was measured.
  const std::pair<const std::vector<int64_t>, size_t>* nearest(const std::vector<int64_t>& sizes) const;
};

// The bytes of the blocks that oneDNN holds of a product in bfloat16, one thread's; a left operand that is turned is
// copied, too. Found by measuring, not in its source: 149 of 151 random products agree where nothing is turned.
int64_t blocks_of(const ProductShape& product);

struct MeasuredTemporaries {
  CallShape call;
  size_t bytes;
};

class Temporaries {
 public:
  static Temporaries& get();

  // Arguments as the program gave them; `add_results` after the kernel.
  static CallShape shape_of(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments);
  static void add_results(CallShape& call, c10::ArrayRef<c10::IValue> results);

  void set_rules(std::map<std::string, TemporaryRule> rules);
  // By the table. Where no exact rule and no measured call gives it, the call is counted as estimated; where there is
  // no rule at all, as not measured, and the bytes are 0.
  size_t bytes(const CallShape& call);
  // The same for who only asks: nothing is counted, and nothing comes back where there is no rule.
  std::optional<size_t> told(const CallShape& call);
  // Whether a call of these very sizes was measured for the table.
  bool measured_of(const CallShape& call);
  // Calls since the last reset of which the table knew nothing, by signature.
  std::map<std::string, uint64_t> unmeasured();
  std::map<std::string, uint64_t> estimated();

  void set_measuring(bool on);
  bool measuring() const { return measuring_; }
  void note(CallShape call, size_t bytes);
  std::vector<MeasuredTemporaries> take_measured();
  void reset();

 private:
  struct Found {
    size_t bytes;
    bool estimated;
  };
  std::optional<Found> find(const CallShape& call) const;

  std::mutex guard_;
  std::map<std::string, TemporaryRule> rules_;
  std::map<std::string, uint64_t> unmeasured_, estimated_;
  std::vector<MeasuredTemporaries> measured_;
  bool measuring_ = false;
};

// While it lives, it follows what kernels of this thread allocate and free, of the device or (`on_host`) of the host.
class Watch {
 public:
  explicit Watch(bool watches, bool on_host = false);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  // The most that was there at a time, less what is there now: the kernel's results.
  size_t excess();

  static void allocated(const void* address, size_t bytes);
  static bool is_on_host();
  static void freed_on_host(const void* address);

 private:
  // Blocks of the device tell nobody that they die: before the sum grows, and at the end, those that have are left out.
  void forget_dead(const void* reborn);

  ska::flat_hash_map<const void*, size_t> blocks_;
  size_t now_ = 0, peak_ = 0;
  Watch* outer_;
  const bool on_host_;
};

}  // namespace sim
