// Calls on NumPy arrays that were made before, and their plans: the short way of a call that is made over and over.
//
// A call is the same as one before if it has the same name, algorithm and further arguments, and its arrays have the
// same dtypes and shapes. Only then is its plan known to fit; everything else goes the thorough way, in Python.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan.hpp"

namespace farandole {

// A reference to a Python object, which it keeps. Made, copied and destroyed with the interpreter lock held.
class Reference {
 public:
  Reference() = default;
  explicit Reference(PyObject* object) : object_(object) { Py_XINCREF(object); }
  static Reference owned(PyObject* object) {
    Reference reference;
    reference.object_ = object;
    return reference;
  }
  Reference(const Reference& other) : Reference(other.object_) {}
  Reference& operator=(Reference other) {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Reference() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() {
    auto* object = object_;
    object_ = nullptr;
    return object;
  }

 private:
  PyObject* object_ = nullptr;
};

// What a call is known by. The objects are borrowed.
struct Asked {
  PyObject *name, *algorithm, *more;  // which collective; how; its arguments that are no arrays, a tuple
  PyObject *source, *target;          // arrays, or None
};

struct Known {
  std::shared_ptr<const Plan> plan;
  Reference algorithm;                // what was run
  bool reads, returns;                // whether it has an input here, and a result
  Reference result_dtype;
  std::vector<std::intptr_t> result_shape;  // to make a result where none is given
  double timeout_s;                   // where none is given
};

// A call that is about to be repeated: its memory, and what it returns.
struct Repeat {
  std::shared_ptr<const Plan> plan;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  Reference algorithm, result;
  double timeout_s = 0;
};

// The table. To be used with the interpreter lock held.
class Repeats {
 public:
  Repeats();  // throws where NumPy cannot be used

  void learn(const Asked& asked, Known known);
  void forget();
  // Whether the call is known and its arrays can be used as they are. False with a Python error where there is no memory
  // for the result.
  bool find(const Asked& asked, Repeat& repeat) const;

 private:
  struct Entry;
  std::unordered_map<std::uint64_t, std::shared_ptr<const Entry>> entries_;
};

}  // namespace farandole
