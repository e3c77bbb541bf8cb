// An operator that a tape recorded, and the memory of a tape's operators.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "recompute/recipe.h"

namespace bayplan::recompute {

using NodeIndex = int32_t;
using ValueIndex = int32_t;
constexpr int32_t kNone = -1;

// How a tensor looks at a storage.
struct Geometry {
  c10::SmallVector<int64_t, 8> extents;  // sizes, then strides
  int64_t offset = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::DispatchKeySet keys;  // its kind of tensor, conjugated and negative views told apart

  static Geometry of(const at::Tensor& tensor);
  void set(const at::Tensor& tensor);
  at::Tensor on(const c10::Storage& storage) const;
};

// A tensor among a node's arguments: which, where, and what of.
struct Argument {
  uint8_t place = 0;        // the argument
  bool written = false;     // by the operator's schema
  bool secret = false;      // another's tensor that the operator writes in secret: a copy is written when it runs again
  int32_t element = kNone;  // in a list of tensors
  ValueIndex value = kNone;  // kNone: the tensor is not the region's, and stands among the node's arguments
  Geometry geometry = {};    // of a value
  uint32_t version = 0;      // of another's tensor, when the operator began; its counter is the tensor's
  // Of another's tensor that its geometry describes wholly: what stands in the place of the tensor, which costs more.
  std::optional<c10::Storage> outside = {};
  c10::VariableVersion counter = {};  // its counter; that of a copy counts nothing
};

// A result of a node: the node, and its place in `Node::made`.
using Result = std::pair<NodeIndex, int32_t>;

// What a node made: a result's storage, or a new content of an argument's.
struct Made {
  ValueIndex value;
  int32_t result;   // of the operator; kNone: the content of the argument below
  int32_t element;  // in a result that is a list
  size_t argument;  // index into Node::tensors
};

// What of a node's results stays: nothing, what autograd saved of them, all that is read again, or of that only what
// autograd did not save.
enum Store : uint8_t { kNothing = 0, kSaved = 1, kAll = 2, kRead = 3 };

struct NodeFacts {
  const Recipe* recipe = nullptr;
  int32_t random_state = kNone;  // of the generator, before: which of the tape's
  bool runs_again = true;        // else its values are stored
  const char* reason = nullptr;  // why it does not
  bool gradients = true;         // mode of gradients then: some kernels choose by it
  bool wants = false;
  uint8_t stored = kNothing;              // as the policy says
  bool closed = false;                    // nobody can need it any more
  uint32_t begin_mark = 0, end_mark = 0;  // on the stream; where there is none, the host's nanoseconds:
  int64_t begin_ns = 0, end_ns = 0;
};

struct Node : NodeFacts {
  std::vector<c10::IValue> arguments;  // the places of values, and of others' that `Argument` holds, are left empty
  std::vector<Argument> tensors;
  std::vector<Made> made;

  void refuse(const char* why) {
    runs_again = false;
    if (reason == nullptr) reason = why;
  }
  // Another's tensor among the arguments; index into `tensors`.
  at::Tensor tensor(size_t index) const;
  void set_tensor(size_t index, const at::Tensor& tensor);
  // Another's tensor is that content from now on.
  void set_outside(size_t index, const c10::Storage& storage);
  // Lets go of what it reads.
  void let_go();
  // As new, but for the memory of its vectors.
  void clear();
};

// A tape's nodes. Their memory stays when they go: most of what a short region costs is fresh blocks for each of them.
class Nodes {
 public:
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  size_t capacity() const { return all_.size(); }
  Node& operator[](size_t index) { return all_[index]; }
  const Node& operator[](size_t index) const { return all_[index]; }
  Node& at(size_t index);
  Node* begin() { return all_.data(); }
  Node* end() { return all_.data() + count_; }
  const Node* begin() const { return all_.data(); }
  const Node* end() const { return all_.data() + count_; }
  Node& back() { return all_[count_ - 1]; }
  // The next node, empty, which is not counted before `add`.
  Node& next();
  Node& open() { return all_[count_]; }
  void add() { ++count_; }
  void take_back();
  void clear();

 private:
  std::vector<Node> all_;
  size_t count_ = 0;
};

// The storage of an ordinary tensor on that device: one that its `Geometry` describes wholly. Null for others: those
// for which `storage_on` has none, and what a geometry does not tell (quantizers, lists of sizes, what transforms wrap,
// subclasses). Asked of every tensor, hence in line.
inline const c10::Storage* plain_storage_on(c10::Device device, const at::Tensor& tensor) {
  using Key = c10::DispatchKey;
  constexpr c10::DispatchKeySet kSpecial({Key::Python, Key::FuncTorchGradWrapper, Key::FuncTorchBatched,
                                          Key::Functionalize, Key::ZeroTensor, Key::NestedTensor, Key::Quantized});
  const c10::TensorImpl* body = tensor.unsafeGetTensorImpl();
  const c10::Storage& storage = body->unsafe_storage();
  const c10::StorageImpl* held = storage.unsafeGetStorageImpl();
  const bool plain = held != nullptr && held->device() == device && !body->key_set().has_any(kSpecial);
  return plain && !body->is_wrapped_number() && !held->sym_nbytes().is_symbolic() ? &storage : nullptr;
}

// The tensor as it is now, without its history: it would hold the graph that holds the tape.
at::Tensor without_history(const at::Tensor& tensor);

// A storage with the same bytes.
c10::Storage copy_of(const c10::Storage& storage);

}  // namespace bayplan::recompute
