// The interpreter lock, given up and taken by threads some of which may outlive the interpreter.
//
// Whoever comes for the lock when the interpreter is ending never gets it. Before 3.14, Python ends such a thread there
// and then, and unwinds its stack, through frames that may not throw (a destructor; nanobind's own calls): then C++ aborts
// the process. So it is caught on the spot, and the thread stays until the process has ended, as 3.14 has it.
#pragma once

#include <Python.h>

#include <unistd.h>

namespace farandole {

// Carries out what may be the end of this thread.
template <class Take>
auto or_stay(Take&& take) noexcept {
  try {
    return take();
  } catch (...) {  // no exception of anyone's: what unwinds a thread that is being ended
    while (true) ::pause();
  }
}

// Without the lock, as long as this lives. Made by a thread that has it.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    or_stay([this] { PyEval_RestoreThread(state_); });
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

// With the lock, as long as this lives. Made by any thread.
class Locked {
 public:
  Locked() : state_(or_stay([] { return PyGILState_Ensure(); })) {}
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace farandole
