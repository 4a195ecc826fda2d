#include "repeats.hpp"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

namespace farandole {
namespace {

constexpr std::size_t kMost = 4096;  // of calls; a program that makes more kinds of them begins again
constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15;

PyArrayObject* as_array(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

// What is known of an array by its look: its dtype and shape. No dtype: there is no array.
struct Look {
  PyObject* dtype = nullptr;
  int dimensions = 0;
  const npy_intp* shape = nullptr;

  // Nothing where it is neither None nor a plain array.
  static std::optional<Look> of(PyObject* object) {
    if (object == Py_None) return Look{};
    if (!PyArray_CheckExact(object)) return std::nullopt;
    auto* array = as_array(object);
    return Look{reinterpret_cast<PyObject*>(PyArray_DESCR(array)), PyArray_NDIM(array), PyArray_DIMS(array)};
  }
  void mix_into(std::uint64_t& hash) const {
    hash = (hash ^ reinterpret_cast<std::uintptr_t>(dtype)) * kMix;
    for (int i = 0; i < dimensions; ++i) hash = (hash ^ static_cast<std::uint64_t>(shape[i])) * kMix;
    hash ^= hash >> 32;
  }
};

struct KeptLook {
  Reference dtype;
  std::vector<npy_intp> shape;

  explicit KeptLook(const Look& look) : dtype(look.dtype), shape(look.shape, look.shape + look.dimensions) {}
  bool operator==(const Look& look) const {
    return dtype.get() == look.dtype && shape.size() == static_cast<std::size_t>(look.dimensions) &&
           std::equal(shape.begin(), shape.end(), look.shape);
  }
};

struct Looks {
  Look source, target;
  bool in_place;
  std::uint64_t hash;  // of the whole call

  // Nothing where the call cannot be told from others by its looks.
  static std::optional<Looks> of(const Asked& asked) {
    auto source = Look::of(asked.source), target = Look::of(asked.target);
    if (!source || !target) return std::nullopt;
    auto more = PyObject_Hash(asked.more);
    if (more == -1) {
      PyErr_Clear();  // what has no hash is no good argument: the thorough way says so
      return std::nullopt;
    }
    // A name is known by its letters, a schedule by itself: to compare it would take longer than the call.
    auto algorithm = PyUnicode_CheckExact(asked.algorithm) ? PyObject_Hash(asked.algorithm)
                                                           : reinterpret_cast<std::intptr_t>(asked.algorithm);
    Looks looks{*source, *target, asked.source == asked.target, static_cast<std::uint64_t>(more)};
    looks.hash = (looks.hash ^ reinterpret_cast<std::uintptr_t>(asked.name)) * kMix;
    looks.hash = (looks.hash ^ static_cast<std::uint64_t>(algorithm)) * kMix + (looks.in_place ? 1 : 0);
    looks.source.mix_into(looks.hash);
    looks.target.mix_into(looks.hash);
    return looks;
  }
};

bool is_dense(PyObject* array, bool is_written) {
  auto wanted = NPY_ARRAY_C_CONTIGUOUS | (is_written ? NPY_ARRAY_WRITEABLE : 0);
  return (PyArray_FLAGS(as_array(array)) & wanted) == wanted;
}

bool import_numpy() {
  import_array1(false);
  return true;
}

}  // namespace

struct Repeats::Entry {
  Reference name, algorithm, more;
  KeptLook source, target;
  bool in_place;
  Known known;

  bool is(const Asked& asked, const Looks& looks) const {
    if (name.get() != asked.name || in_place != looks.in_place) return false;
    if (!(source == looks.source) || !(target == looks.target)) return false;
    if (algorithm.get() != asked.algorithm) {
      if (!PyUnicode_CheckExact(algorithm.get()) || !PyUnicode_CheckExact(asked.algorithm)) return false;
      if (PyUnicode_Compare(algorithm.get(), asked.algorithm) != 0) return false;
    }
    int same = PyObject_RichCompareBool(more.get(), asked.more, Py_EQ);
    if (same < 0) PyErr_Clear();
    return same == 1;
  }
};

Repeats::Repeats() {
  static const bool there = import_numpy();
  if (!there) throw std::runtime_error("NumPy cannot be used from the extension");
}

void Repeats::learn(const Asked& asked, Known known) {
  auto looks = Looks::of(asked);
  if (!looks) return;
  if (entries_.size() >= kMost) forget();
  entries_[looks->hash] = std::make_shared<const Entry>(
      Entry{Reference(asked.name), Reference(asked.algorithm), Reference(asked.more), KeptLook(looks->source),
            KeptLook(looks->target), looks->in_place, std::move(known)});
}

void Repeats::forget() {
  decltype(entries_) gone;
  gone.swap(entries_);  // what goes may call Python, and that this table
}

bool Repeats::find(const Asked& asked, Repeat& repeat) const {
  auto looks = Looks::of(asked);
  if (!looks) return false;
  auto found = entries_.find(looks->hash);
  if (found == entries_.end()) return false;
  auto entry = found->second;  // kept: a comparison may call Python
  if (!entry->is(asked, *looks)) return false;
  auto& known = entry->known;

  PyObject* source = known.reads && asked.source != Py_None ? asked.source : nullptr;
  PyObject* target = known.returns && asked.target != Py_None ? asked.target : nullptr;
  if (source != nullptr && !is_dense(source, false)) return false;
  if (target != nullptr && !is_dense(target, true)) return false;
  if (source != nullptr) repeat.input = static_cast<const std::byte*>(PyArray_DATA(as_array(source)));
  if (target != nullptr) {
    repeat.output = static_cast<std::byte*>(PyArray_DATA(as_array(target)));
    repeat.result = Reference(target);
  } else if (known.returns) {
    auto* dtype = reinterpret_cast<PyArray_Descr*>(Reference(known.result_dtype).release());
    auto* shape = const_cast<npy_intp*>(known.result_shape.data());
    auto* made = PyArray_NewFromDescr(&PyArray_Type, dtype, static_cast<int>(known.result_shape.size()), shape, nullptr,
                                      nullptr, 0, nullptr);
    if (made == nullptr) return false;
    repeat.result = Reference::owned(made);
    repeat.output = static_cast<std::byte*>(PyArray_DATA(as_array(made)));
  } else {
    repeat.result = Reference(Py_None);
  }
  if (source != nullptr && target != nullptr && repeat.input != repeat.output) {
    auto input_bytes = PyArray_NBYTES(as_array(source)), output_bytes = PyArray_NBYTES(as_array(target));
    if (repeat.input < repeat.output + output_bytes && repeat.output < repeat.input + input_bytes) return false;
  }
  repeat.plan = known.plan;
  repeat.algorithm = known.algorithm;
  repeat.timeout_s = known.timeout_s;
  return true;
}

}  // namespace farandole
