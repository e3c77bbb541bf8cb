// solvers.swap._issuing: when swap-ins are issued (glue only; solvers/swap/_issuing.pyi describes it).
//
// It needs pybind11's headers, which torch brings, to be built, and no torch to run.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "swap/issuer.h"

namespace py = pybind11;
using namespace py::literals;

namespace {

using List = std::vector<int64_t>;

// The lists of solvers/swap/evaluate.py and launches.py, by the same names.
swap::Given given(const py::object& from) {
  const auto list = [](const py::object& of, const char* name) { return of.attr(name).cast<List>(); };
  swap::Given made;
  made.time = list(from, "time");
  made.need = list(from, "need");
  made.size = list(from, "size");
  made.first = list(from, "first");
  made.last = list(from, "last");
  made.out_time = list(from, "out_time");
  made.in_time = list(from, "in_time");
  const py::object launches = from.attr("launches");
  if (launches.is_none()) return made;
  made.host = list(launches, "host");
  made.tail = list(launches, "tail");
  for (const py::handle op : launches.attr("waiting")) made.waiting.push_back(op.cast<int64_t>());
  made.transfer = launches.attr("transfer").cast<int64_t>();
  return made;
}

std::optional<std::tuple<std::vector<std::pair<int64_t, int64_t>>, int64_t, bool>> told(
    std::optional<swap::Issued> issued) {
  if (!issued) return std::nullopt;
  return {{std::move(issued->choices), issued->makespan, issued->between}};
}

}  // namespace

PYBIND11_MODULE(_issuing, module) {
  py::class_<swap::Issuer>(module, "Issuer")
      .def(py::init([](const py::object& from) { return swap::Issuer(given(from)); }), "given"_a)
      .def(
          "issue",
          [](swap::Issuer& issuer, List selected, bool eager, bool anywhere, int64_t most) {
            using swap::Early;
            const Early early = !eager ? Early::kNever : anywhere ? Early::kAnywhere : Early::kAtEvents;
            return told(issuer.run(std::move(selected), {}, early, most));
          },
          "selected"_a, "eager"_a, "anywhere"_a, "most"_a)
      .def(
          "makespan",
          [](swap::Issuer& issuer, const std::vector<std::pair<int64_t, int64_t>>& choices) -> std::optional<int64_t> {
            List tensors, due;
            for (const auto& [tensor, op] : choices) {
              tensors.push_back(tensor);
              due.push_back(op);
            }
            const auto issued = issuer.run(std::move(tensors), due, swap::Early::kNever, swap::kNowhere);
            return issued ? std::optional(issued->makespan) : std::nullopt;
          },
          "choices"_a);
}
