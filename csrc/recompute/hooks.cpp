// PyTorch asks its engine for the hooks on saved tensors, and its engine asks Python. While somebody records, an engine
// stands before it that answers for the recorder, and hands everything else on.
#include "recompute/hooks.h"

#include <ATen/SavedTensorHooks.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <mutex>

#include "recompute/pooled.h"
#include "recompute/recorder.h"

namespace bayplan::recompute {
namespace {

using torch::autograd::Engine;

PyObject* python_pack = nullptr;
PyObject* python_unpack = nullptr;
c10::impl::PyInterpreter* python = nullptr;
std::atomic<Engine*> behind{nullptr};  // PyTorch's own

class Hooks final : public torch::autograd::SavedVariableHooks, public Pooled<Hooks> {
 public:
  void call_pack_hook(const at::Tensor& tensor) override {
    if (tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python)) {  // Python's to take apart
      in_python_ = behind.load()->get_default_saved_variable_hooks();
      return in_python_->call_pack_hook(tensor);
    }
    pack(packed_, tensor);
  }

  at::Tensor call_unpack_hook() override {
    return in_python_ != nullptr ? in_python_->call_unpack_hook() : packed_.unpack();
  }

 private:
  Packed packed_;
  std::unique_ptr<torch::autograd::SavedVariableHooks> in_python_;
};

// Whether the hooks that the program set last on this thread are the recorder's.
bool are_innermost() {
  const at::impl::SavedTensorDefaultHooksTLS& state = at::SavedTensorDefaultHooks::get_tls_state();
  if (state.is_tracing || state.stack.empty()) return false;
  const auto& [pack, unpack] = state.stack.top();
  return pack.ptr(python) == python_pack && unpack.ptr(python) == python_unpack;
}

// The type of a graph's root differs between PyTorch's releases.
template <typename Method>
struct Root;
template <typename Result, typename Class, typename Task, typename Node, typename Buffer>
struct Root<Result (Class::*)(Task, Node, Buffer)> {
  using type = Node;
};

class EngineInFront final : public Engine {
 public:
  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs, bool keep_graph,
                                         bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return behind.load()->execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task,
      Root<decltype(&Engine::execute_with_graph_task)>::type root, torch::autograd::InputBuffer&& buffer) override {
    return behind.load()->execute_with_graph_task(task, std::move(root), std::move(buffer));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return behind.load()->make_anomaly_metadata();
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (recording_tape() != nullptr && are_innermost()) return std::make_unique<Hooks>();
    return behind.load()->get_default_saved_variable_hooks();
  }
};

Engine& in_front() {
  static auto* engine = new EngineInFront();  // never destroyed: other threads may still ask
  return *engine;
}
Engine& own() { return *behind.load(); }

std::mutex counting;
int recorders = 0;

}  // namespace

void set_python_hooks(PyObject* pack, PyObject* unpack) {
  Py_INCREF(pack);  // for ever: their addresses are compared
  Py_INCREF(unpack);
  python = getPyInterpreter();
  python_pack = pack;
  python_unpack = unpack;
}

void push_python_hooks(PyObject* unpack) {
  at::SavedTensorDefaultHooks::lazy_initialize();
  Py_INCREF(python_pack);
  Py_INCREF(unpack);
  at::SavedTensorDefaultHooks::push_hooks({python_pack, python}, {unpack, python});
}

void pop_python_hooks() {
  auto [pack, unpack] = at::SavedTensorDefaultHooks::pop_hooks();
  Py_XDECREF(pack.release());
  Py_XDECREF(unpack.release());
}

void begin_hooks() {
  const std::lock_guard<std::mutex> lock(counting);
  if (recorders++ > 0) return;
  behind.store(&Engine::get_default_engine());
  torch::autograd::set_default_engine_stub(&in_front);
}

void end_hooks() {
  const std::lock_guard<std::mutex> lock(counting);
  if (--recorders > 0) return;
  torch::autograd::set_default_engine_stub(&own);
}

}  // namespace bayplan::recompute
