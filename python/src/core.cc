// The extension module muster._core: ForeignLoop (muster/own_loop/foreign_loop.h) for Python.
//
// Tensors never pass as Python objects: gradients come as addresses, weights go as arrays over
// memory of ours (DLPack). So this links libtorch, the very one that the package torch has loaded,
// but nothing of torch's Python bindings.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/own_loop/foreign_loop.h"

namespace nb = nanobind;

namespace muster {
namespace {

using Shape = std::vector<int64_t>;
using Array = nb::ndarray<nb::pytorch, float, nb::device::cpu>;

template <typename T>
const T* at(uintptr_t address) {
  return reinterpret_cast<const T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// What Python describes before there is a loop.
struct Description {
  ForeignModel model;
  ForeignData data;

  void add_parameter(std::string name, Shape shape, uintptr_t initial, bool trains,
                     bool is_embedding) {
    model.parameters.push_back(
        {std::move(name), std::move(shape), at<float>(initial), trains, is_embedding});
  }
  void add_statistic(std::string name, Shape shape, uintptr_t initial, double momentum) {
    model.statistics.push_back({std::move(name), std::move(shape), at<float>(initial), momentum});
  }
  void add_contents(uintptr_t first, size_t bytes) {
    data.contents.emplace_back(at<std::byte>(first), bytes);
  }
};

// The loop, and the shapes of what it lends to Python.
class Loop {
 public:
  Loop(std::vector<std::string> words, Description description, bool resumable)
      : description_(std::move(description)),
        loop_(std::move(words), description_.model, description_.data, resumable) {}

  Array parameter(size_t index) {
    return array(loop_.parameter(index), description_.model.parameters.at(index).shape);
  }
  Array running(size_t index) { return array(loop_.running(index), statistic(index).shape); }
  Array latest(size_t index) { return array(loop_.latest(index), statistic(index).shape); }

  bool step() { return loop_.step(); }
  std::optional<ForeignLoop::Lane> next_lane() {
    const nb::gil_scoped_release others;
    return loop_.next_lane();
  }
  void begin_backward() { loop_.begin_backward(); }
  void gradient(size_t index, uintptr_t values) {
    const nb::gil_scoped_release others;
    loop_.gradient(index, at<float>(values));
  }
  void end_backward(double mean_loss) { loop_.end_backward(mean_loss); }
  void abandon_backward() { loop_.abandon_backward(); }
  bool commit() {
    const nb::gil_scoped_release others;
    return loop_.commit();
  }
  void progress() { loop_.progress(); }
  void leave() {
    const nb::gil_scoped_release others;
    loop_.leave();
  }
  int64_t steps() const { return loop_.steps(); }
  bool finished() const { return loop_.finished(); }
  std::optional<int> exit_code() const { return loop_.exit_code(); }

 private:
  const ForeignModel::Statistic& statistic(size_t index) const {
    return description_.model.statistics.at(index);
  }
  // A program may keep such a tensor, or another view of its memory, beyond the end of the worker:
  // it owns that memory, not this object.
  Array array(float* values, const Shape& shape) {
    using Owner = std::shared_ptr<const void>;
    const std::vector<size_t> sizes(shape.begin(), shape.end());
    const nb::capsule owner(new Owner(loop_.owner_of(values)), [](void* kept) noexcept {
      delete static_cast<Owner*>(kept);  // NOLINT(cppcoreguidelines-owning-memory)
    });
    return Array(values, sizes.size(), sizes.data(), owner);
  }

  Description description_;
  ForeignLoop loop_;
};

// ForeignError as muster._core.Error, a RuntimeError with the attribute exit_code.
void translate_errors(nb::module_& module) {
  module.attr("Error") =
      nb::steal(PyErr_NewException("muster._core.Error", PyExc_RuntimeError, nullptr));
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* type) {
        try {
          std::rethrow_exception(thrown);
        } catch (const ForeignError& error) {
          const nb::handle kind(static_cast<PyObject*>(type));
          nb::object value = kind(error.what());
          value.attr("exit_code") = error.exit_code();
          PyErr_SetObject(kind.ptr(), value.ptr());
        }
      },
      nb::object(module.attr("Error")).ptr());
}

}  // namespace

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);  // a program may end in the middle of its loop
  module.doc() = "Muster's worker inside this process. Private: use the package muster.";
  translate_errors(module);
  nb::class_<ForeignLoop::Lane>(module, "Lane")
      .def_ro("step", &ForeignLoop::Lane::step)
      .def_ro("number", &ForeignLoop::Lane::number)
      .def_ro("samples", &ForeignLoop::Lane::samples)
      .def_ro("weight", &ForeignLoop::Lane::weight)
      .def_ro("seed", &ForeignLoop::Lane::seed)
      .def_ro("trial", &ForeignLoop::Lane::trial);
  nb::class_<Description>(module, "Description")
      .def(nb::init<>())
      .def("add_parameter", &Description::add_parameter, nb::arg("name"), nb::arg("shape"),
           nb::arg("initial"), nb::arg("trains"), nb::arg("is_embedding"))
      .def("add_statistic", &Description::add_statistic, nb::arg("name"), nb::arg("shape"),
           nb::arg("initial"), nb::arg("momentum"))
      .def(
          "set_data",
          [](Description& self, uint64_t samples, std::string identity) {
            self.data.samples = samples;
            self.data.identity = std::move(identity);
          },
          nb::arg("samples"), nb::arg("identity"))
      .def("add_contents", &Description::add_contents, nb::arg("first"), nb::arg("bytes"));
  nb::class_<Loop>(module, "Loop")
      .def(
          "__init__",
          [](Loop* self, std::vector<std::string> words, Description description, bool resumable) {
            const nb::gil_scoped_release others;
            new (self) Loop(std::move(words), std::move(description), resumable);
          },
          nb::arg("words"), nb::arg("description"), nb::arg("resumable"))
      .def("parameter", &Loop::parameter)
      .def("running", &Loop::running)
      .def("latest", &Loop::latest)
      .def("step", &Loop::step)
      .def("next_lane", &Loop::next_lane)
      .def("begin_backward", &Loop::begin_backward)
      .def("gradient", &Loop::gradient)
      .def("end_backward", &Loop::end_backward)
      .def("abandon_backward", &Loop::abandon_backward)
      .def("commit", &Loop::commit)
      .def("progress", &Loop::progress)
      .def("leave", &Loop::leave)
      .def_prop_ro("steps", &Loop::steps)
      .def_prop_ro("finished", &Loop::finished)
      .def_prop_ro("exit_code", &Loop::exit_code);
  module.def("prepare", &prepare_foreign_loop, nb::arg("seed"), nb::arg("threads_per_lane"));
  module.def(
      "settings",
      [](const std::vector<std::string>& words) {
        const auto settings = foreign_settings(words);
        return nb::make_tuple(settings.seed, settings.threads_per_lane);
      },
      nb::arg("words"));
  module.def("make_run", &make_own_run, nb::arg("job"), nb::arg("name"), nb::arg("sets"),
             nb::arg("run_directory"), nb::arg("start"));
  module.def("note_run_start", &note_run_start, nb::arg("run_directory"), nb::arg("event"));
  module.def("note_run_end", &note_run_end, nb::arg("run_directory"), nb::arg("exit_code"));
  module.def(
      "numerics",
      [] {
        const nb::gil_scoped_release others;  // backward wants it
        return foreign_numerics();
      },
      "A hash of what this machine's kernels compute, as `muster doctor` shows it.");
}

}  // namespace muster
