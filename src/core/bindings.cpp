// What Python sees of the engine. The only file below which there are no Python objects.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <utility>

#include <pthread.h>

#include "engine.hpp"
#include "interpreter_lock.hpp"
#include "post.hpp"
#include "progress.hpp"
#include "repeats.hpp"

namespace nb = nanobind;
using namespace farandole;

namespace {

// Rows of int64 that Python packed with NumPy become a vector of structs of int64.
template <class Row>
std::vector<Row> rows(nb::bytes packed) {
  if (packed.size() % sizeof(Row) != 0) throw std::invalid_argument("a table has a broken last row");
  std::vector<Row> table(packed.size() / sizeof(Row));
  std::memcpy(static_cast<void*>(table.data()), packed.data(), packed.size());
  return table;
}

void check(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

bool within(std::int64_t first, std::int64_t count, std::size_t size) {
  return first >= 0 && count >= 0 && static_cast<std::uint64_t>(first) + static_cast<std::uint64_t>(count) <= size;
}

// A plan refers to memory by number; refuse numbers that lead outside, so that no plan can corrupt a process.
void check_plan(const Plan& plan, int ranks, std::size_t set_bytes) {
  // A call without a stage or a slice would let a rank run away from the others.
  check(plan.slices >= 1 && !plan.stages.empty() && plan.stages.back().announces != 0, "a plan needs an end that is announced");
  check(plan.stride >= 1 && plan.itemsize >= 1 && plan.divisor >= 1,
        "a plan needs a stride, an item size and a divisor");
  for (auto& stage : plan.stages) {
    check(within(stage.first_wait, stage.waits, plan.waits.size()), "a stage waits outside the table");
    check(within(stage.first_step, stage.before + stage.after, plan.steps.size()), "a stage steps outside the table");
  }
  for (auto peer : plan.waits) check(peer >= 0 && peer < ranks, "a wait for a rank that does not exist");
  for (auto& step : plan.steps) {
    check(step.operands >= 1 && within(step.first_operand, step.operands, plan.operands.size()), "operands outside the table");
    check(step.operands == 1 || plan.fold != nullptr, "a fold without an op");
    check(step.length >= 0 && step.length <= (std::int64_t{1} << 48), "a step of impossible length");
    auto fits = [&](std::int64_t offset, bool is_partial) {
      return within(offset, step.length * (is_partial ? plan.partial_itemsize : plan.itemsize), set_bytes);
    };
    check(step.place < 0 || fits(step.place, step.is_partial != 0), "a place outside the slot");
    check(step.is_partial == 0 || step.output < 0, "a partial value for the output");
    check(step.operands > 1 || (plan.operands[static_cast<std::size_t>(step.first_operand)].is_partial != 0) == (step.is_partial != 0),
          "a copy that would change how elements are stored");
    for (std::int64_t i = 0; i < step.operands; ++i) {
      auto& operand = plan.operands[static_cast<std::size_t>(step.first_operand + i)];
      check(operand.rank >= kInput - ranks && operand.rank < ranks, "an operand of a rank that does not exist");
      check(operand.rank >= kInput || plan.peer_stride != 0, "an input of another rank that is not shared");
      check(operand.rank < 0 ? operand.offset >= 0 : fits(operand.offset, operand.is_partial != 0), "an operand outside the slot");
    }
  }
}

// Bytes that a call writes for other ranks to read, and reads of what they have written.
std::tuple<std::uint64_t, std::uint64_t> traffic(const Plan& plan, int rank) {
  std::int64_t sent = 0, received = 0;
  for (auto& step : plan.steps) {
    std::int64_t elements = 0;
    for (std::int64_t slice = 0; slice < plan.slices && step.limit > slice * plan.stride; ++slice) {
      elements += std::min(step.length, step.limit - slice * plan.stride);
    }
    if (step.place >= 0) sent += elements * (step.is_partial != 0 ? plan.partial_itemsize : plan.itemsize);
    for (std::int64_t i = 0; i < step.operands; ++i) {
      auto& operand = plan.operands[static_cast<std::size_t>(step.first_operand + i)];
      if (operand.rank == kInput || operand.rank == rank) continue;
      received += elements * (operand.is_partial != 0 ? plan.partial_itemsize : plan.itemsize);
    }
  }
  return {static_cast<std::uint64_t>(sent), static_cast<std::uint64_t>(received)};
}

// Ctrl-C and other signals, while Python waits for C++ with the interpreter lock released.
bool interrupted() {
  Locked held;
  return PyErr_CheckSignals() != 0;
}
// Never destroyed: threads may be in a call when the process ends.
const std::function<bool()>& kInterrupted = *new std::function<bool()>(interrupted);

// How often this process, or those it was forked from, have been forked. A child has none of its parent's threads, nor
// the segment; locks may be held for good. So what was made before a fork is refused, not tried, and asking costs nothing.
std::atomic<unsigned> forks{0};

using Outcome = std::tuple<int, int>;  // (failure, peer); (0, -1) where all went well

Outcome outcome(Verdict verdict) {
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return {static_cast<int>(verdict.failure), verdict.peer};
}

// What `Runner.repeat` raises: its arguments are those of an Outcome, and the timeout in seconds.
PyObject* failed_type = nullptr;

const Outcome kForked{static_cast<int>(Failure::forked), -1};

const std::byte* bytes_at(std::uintptr_t address) { return reinterpret_cast<const std::byte*>(address); }
std::byte* room_at(std::uintptr_t address) { return reinterpret_cast<std::byte*>(address); }

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e9)));
}

// Calls a Python function when a task is done, on the thread that did it; what it raises is printed, not lost.
std::function<void()> callback(nb::object function) {
  if (function.is_none()) return {};
  auto shared = std::shared_ptr<nb::object>(new nb::object(std::move(function)), [](nb::object* object) {
    Locked held;
    delete object;
  });
  return [shared] {
    Locked held;
    try {
      (*shared)();
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a function to be called when a collective is done");
    }
  };
}

// What the clock showed when it was read so many times, one read right after the other.
std::vector<std::int64_t> clock_steps(std::int64_t count) {
  std::vector<std::int64_t> times(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
  for (auto& time : times) time = clock_ns();
  return times;
}

// What is in flight: a collective or a message. `message` is null for a collective.
class Work {
 public:
  Work(std::shared_ptr<Task> task, std::shared_ptr<Message> message) : task_(std::move(task)), message_(std::move(message)) {}

  bool done() const { return is_of_a_fork() || task_->done(); }
  Outcome verdict() const { return is_of_a_fork() ? kForked : outcome(task_->verdict()); }
  // False if it is not done in time.
  bool wait(double timeout_s) const {
    if (is_of_a_fork()) return true;
    auto deadline = after(timeout_s);
    while (true) {
      {
        Unlocked released;
        auto next = std::min(deadline, Clock::now() + std::chrono::milliseconds(50));
        if (task_->wait_until(next)) return true;
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (Clock::now() >= deadline) return false;
    }
  }
  // (sender or receiver, bytes, dtype, whether the receive's buffer fits)
  std::tuple<int, std::uint64_t, std::string, bool> message() const {
    check(message_ != nullptr, "a collective is not a message");
    auto& dtype = message_->header.dtype;
    return {message_->peer, message_->header.bytes, std::string(dtype, strnlen(dtype, sizeof dtype)), message_->fits};
  }

 private:
  bool is_of_a_fork() const { return forks.load(std::memory_order_relaxed) != forks_; }

  std::shared_ptr<Task> task_;
  std::shared_ptr<Message> message_;
  unsigned forks_ = forks.load();
};

// One rank's side of a communicator.
class Runner {
 public:
  Runner(int fd, int rank, int ranks, std::size_t slot_bytes, std::vector<int> process_fds,
         std::tuple<int, int, int> foreground, std::tuple<int, int, int> background, int batch,
         std::optional<bool> far, bool crowded)
      : segment_(std::make_shared<Segment>(fd, ranks, slot_bytes)),
        rank_(rank),
        batch_(batch),
        engine_(segment_, rank, process_fds, batch, far),
        progress_(std::make_unique<Progress>(engine_, patience(foreground, spread(crowded)), patience(background, Spread::as_it_is))),
        post_(std::make_unique<Post>(segment_, rank, std::move(process_fds), patience(foreground, spread(crowded)))) {
    introduce(segment_->flight(rank));
  }

  ~Runner() {
    if (is_of_a_fork()) {
      // The segment is not mapped here, the threads do not run, and locks may be held for good: touch nothing.
      (void)progress_.release();
      (void)post_.release();  // keeps the segment, whose addresses may be something else by now
      return;
    }
    Unlocked released;  // a background thread may be about to call Python
    progress_->stop(0);
    post_->stop(0);
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  std::shared_ptr<Plan> plan(nb::bytes stages, nb::bytes steps, nb::bytes operands, nb::bytes waits, std::int64_t slices,
                             std::int64_t stride, std::int64_t itemsize, std::string_view dtype, std::string_view op,
                             std::int64_t divisor, std::int64_t peer_stride, bool streams, std::size_t set_bytes,
                             std::uint64_t fingerprint, std::string text, std::uint64_t size_bytes) const {
    auto wide = static_cast<std::int64_t>(partial_itemsize(dtype, static_cast<std::size_t>(itemsize)));
    auto plan = std::make_shared<Plan>(Plan{rows<Stage>(stages), rows<Step>(steps), rows<Operand>(operands),
                                            rows<std::int64_t>(waits), slices, stride, itemsize, wide, divisor, peer_stride, streams,
                                            slices == 1 && set_bytes <= kSmallSetBytes, set_bytes,
                                            op.empty() ? nullptr : find_fold(dtype, op), fingerprint, std::move(text)});
    check(fingerprint != 0, "a call needs a fingerprint");  // memory that nobody has written to has none
    if (plan->text.size() >= kTextBytes) plan->text.resize(kTextBytes - 1);
    check_plan(*plan, segment_->ranks(), plan->is_small ? set_bytes : engine_.set_bytes());
    static std::atomic<std::uint64_t> plans{0};
    plan->id = ++plans;
    plan->bytes = size_bytes;
    std::tie(plan->sent, plan->received) = traffic(*plan, rank_);
    return plan;
  }

  Outcome run(const Plan& plan, std::uintptr_t input, std::uintptr_t output, double timeout_s) {
    if (is_of_a_fork()) return kForked;
    Verdict verdict;
    {
      Unlocked released;
      verdict = progress_->run(plan, bytes_at(input), room_at(output), timeout_s, kInterrupted);
    }
    return outcome(verdict);
  }

  // Remember a call on arrays that `plan` has carried out, for `repeat`. `result` is what it returned: an array or None.
  void remember(nb::handle name, nb::handle algorithm, nb::handle more, nb::handle source, nb::handle target,
                std::shared_ptr<const Plan> plan, bool reads, nb::handle result_dtype, std::vector<std::intptr_t> result_shape,
                double timeout_s, nb::handle last_algorithm) {
    repeats_.learn({name.ptr(), algorithm.ptr(), more.ptr(), source.ptr(), target.ptr()},
                   {std::move(plan), Reference(last_algorithm.ptr()), reads, !result_dtype.is_none(),
                    Reference(result_dtype.ptr()), std::move(result_shape), timeout_s});
  }
  void forget() { repeats_.forget(); }

  // Carry out a call that is remembered and return what it returned; NotImplemented, and nothing done, if there is none.
  nb::object repeat(nb::handle name, nb::handle algorithm, nb::handle more, nb::handle source, nb::handle target,
                    nb::handle timeout_s) {
    Repeat repeat;
    bool known = repeats_.find({name.ptr(), algorithm.ptr(), more.ptr(), source.ptr(), target.ptr()}, repeat);
    if (known && !timeout_s.is_none()) {
      known = PyFloat_Check(timeout_s.ptr()) || PyLong_Check(timeout_s.ptr());
      if (known) repeat.timeout_s = PyFloat_AsDouble(timeout_s.ptr());
    }
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    if (!known) return nb::borrow(Py_NotImplemented);
    Verdict verdict{Failure::forked, -1};
    if (!is_of_a_fork()) {
      Unlocked released;
      verdict = progress_->run(*repeat.plan, repeat.input, repeat.output, repeat.timeout_s, kInterrupted);
    }
    auto [failure, peer] = outcome(verdict);
    if (failure != 0) {
      PyErr_SetObject(failed_type, nb::make_tuple(failure, peer, repeat.timeout_s).ptr());
      throw nb::python_error();
    }
    last_algorithm = nb::borrow(repeat.algorithm.get());
    return nb::steal(repeat.result.release());
  }
  nb::object last_algorithm = nb::str("");  // that was run

  // As run; also the records of what was done when, packed: src/core/recording.hpp has their fields.
  std::tuple<Outcome, nb::bytes> run_traced(const Plan& plan, std::uintptr_t input, std::uintptr_t output, double timeout_s) {
    if (is_of_a_fork()) return {kForked, nb::bytes("", 0)};
    Recording recording(records_of(plan, segment_->ranks(), batch_));
    Verdict verdict;
    {
      Unlocked released;
      verdict = progress_->run(plan, bytes_at(input), room_at(output), timeout_s, kInterrupted, &recording);
    }
    auto& records = recording.records();
    return {outcome(verdict), nb::bytes(reinterpret_cast<const char*>(records.data()), records.size() * sizeof(Record))};
  }
  std::int64_t records(const Plan& plan) const { return records_of(plan, segment_->ranks(), batch_); }

  // The caller keeps the plan, and the memory, until the work is done.
  Work submit(const Plan& plan, std::uintptr_t input, std::uintptr_t output, double timeout_s, nb::object conclude) {
    if (is_of_a_fork()) return refused(nullptr);
    auto task = std::make_shared<Task>(callback(std::move(conclude)));
    Unlocked released;
    progress_->submit(task, plan, bytes_at(input), room_at(output), timeout_s);
    return {task, nullptr};
  }

  // `receives` or else sends; in the background if `waits` is false.
  Work message(bool receives, std::uintptr_t address, std::uint64_t bytes, std::string_view dtype, int peer, std::int64_t tag,
               double timeout_s, bool waits, nb::object conclude) {
    check(peer < segment_->ranks() && peer >= (receives ? kAnyRank : 0), "a message for a rank that does not exist");
    check(peer != rank_, "a message to oneself");
    auto message = std::make_shared<Message>();
    message->header.bytes = bytes;
    message->header.tag = tag;
    auto name = dtype.substr(0, sizeof message->header.dtype);
    std::memset(message->header.dtype, 0, sizeof message->header.dtype);
    std::memcpy(message->header.dtype, name.data(), name.size());
    message->buffer = room_at(address);
    message->peer = peer;
    message->waits = waits;
    message->deadline = after(timeout_s);
    if (is_of_a_fork()) return refused(message);
    message->task = std::make_shared<Task>(callback(std::move(conclude)));
    {
      Unlocked released;
      receives ? post_->receive(message) : post_->send(message);
      waits ? post_->finish(message, kInterrupted) : post_->leave_to_background();
    }
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return {message->task, message};
  }

  // Of each rank: the number of its call, how it has left (Left), the call in words.
  std::vector<std::tuple<std::uint64_t, int, std::string>> states() const {
    std::vector<std::tuple<std::uint64_t, int, std::string>> result;
    if (is_of_a_fork()) return result;
    for (auto& s : engine_.states()) result.emplace_back(s.call, static_cast<int>(s.left), s.text);
    return result;
  }

  // The exception that ended a rank, if one did.
  std::string ending(int rank) const {
    check(rank >= 0 && rank < segment_->ranks(), "a rank that does not exist");
    if (is_of_a_fork()) return {};
    auto& text = segment_->flight(rank).identity.ending;
    return std::string(text, strnlen(text, kNameBytes));
  }
  // How a rank has left (Left).
  int left(int rank) const {
    check(rank >= 0 && rank < segment_->ranks(), "a rank that does not exist");
    return is_of_a_fork() ? 0 : static_cast<int>(segment_->line(rank).left.load());
  }
  // What readers from outside see of the segment: all but pipes and slots.
  nb::bytes control() const {
    if (is_of_a_fork()) return nb::bytes("", 0);
    return nb::bytes(reinterpret_cast<const char*>(segment_->control()), segment_->control_bytes());
  }

  // Let calls in flight end, but for no longer than `limit_s`, and make no more. `how` is one of Left; `ending` is the
  // exception that is the reason, if it is one.
  void close(double limit_s, int how, std::string_view ending) {
    check(how >= static_cast<int>(Left::closed) && how <= static_cast<int>(Left::shrinks), "no way to leave");
    if (is_of_a_fork()) return;
    auto& text = segment_->flight(rank_).identity.ending;
    std::memcpy(text, ending.data(), std::min(ending.size(), kNameBytes - 1));
    Unlocked released;
    auto end = after(limit_s);
    progress_->stop(limit_s);
    post_->stop(std::chrono::duration<double>(end - Clock::now()).count());
    engine_.leave(static_cast<Left>(how));
  }
  std::uint64_t call() const { return engine_.call(); }
  std::size_t set_bytes() const { return engine_.set_bytes(); }
  // How many ns it takes to read a line that each rank has just written, 0 where that is not known.
  std::vector<std::int64_t> distances_ns() const {
    if (is_of_a_fork()) return std::vector<std::int64_t>(static_cast<std::size_t>(segment_->ranks()), 0);
    return engine_.distances_ns();
  }
  // Whether what others will read is written past the caches.
  bool writes_past_caches() const { return !is_of_a_fork() && engine_.writes_past_caches(); }
  std::tuple<int, int, int> broken() const {
    if (is_of_a_fork()) return {static_cast<int>(Failure::forked), -1, -1};
    auto verdict = segment_->broken();
    return {static_cast<int>(verdict.failure), verdict.peer, segment_->broken_by()};
  }

 private:
  bool is_of_a_fork() const { return forks.load(std::memory_order_relaxed) != forks_; }
  static Work refused(std::shared_ptr<Message> message) {
    auto task = std::make_shared<Task>();
    task->finish({Failure::forked, -1});
    return {task, std::move(message)};
  }
  static Spread spread(bool crowded) { return crowded ? Spread::evenly : Spread::apart; }
  static Patience patience(std::tuple<int, int, int> looks, Spread spread) {
    return {std::get<0>(looks), std::get<1>(looks), std::get<2>(looks), spread};
  }

  std::shared_ptr<Segment> segment_;
  int rank_, batch_;
  Engine engine_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Post> post_;
  Repeats repeats_;
  unsigned forks_ = forks.load();
};

}  // namespace

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);  // others, such as PyTorch, keep communicators until the process ends
  module.doc() = "The native engine: runs compiled schedules over memory that processes share.";
  failed_type = PyErr_NewException("farandole._core.Failed", nullptr, nullptr);
  module.attr("Failed") = nb::borrow(failed_type);
  module.attr("ANY_RANK") = kAnyRank;
  module.attr("FAR_NS") = kFarNs;
  module.attr("RECORD_BYTES") = sizeof(CallRecord);
  module.attr("FLIGHT_BYTES") = sizeof(Flight);
  module.attr("SEGMENT_MAGIC") = kMagic;
  module.attr("SEGMENT_VERSION") = kVersion;
  pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  module.def("segment_offsets", &Segment::offsets, nb::arg("ranks"), nb::arg("slot_bytes"));
  // The clock of flight records now: whether it is the processor's counter, what it shows, and CLOCK_MONOTONIC in ns.
  module.def("flight_clock", [] { return std::make_tuple(kCounterIsEven, ticks(), monotonic_ns()); });
  module.def("segment_bytes", &Segment::bytes_needed, nb::arg("ranks"), nb::arg("slot_bytes"));
  module.def("instruction_set", &instruction_set);
  module.def("clock_steps", &clock_steps, nb::arg("count"));
  module.def("partial_itemsize", &partial_itemsize, nb::arg("dtype"), nb::arg("itemsize"));
  nb::class_<Plan>(module, "Plan");
  nb::class_<Work>(module, "Work")
      .def("done", &Work::done)
      .def("verdict", &Work::verdict)
      .def("wait", &Work::wait, nb::arg("timeout_s"))
      .def("message", &Work::message);
  nb::class_<Runner>(module, "Runner")
      .def(nb::init<int, int, int, std::size_t, std::vector<int>, std::tuple<int, int, int>, std::tuple<int, int, int>, int,
                    std::optional<bool>, bool>(),
           nb::arg("fd"), nb::arg("rank"), nb::arg("ranks"), nb::arg("slot_bytes"), nb::arg("process_fds"),
           nb::arg("foreground"), nb::arg("background"), nb::arg("batch"), nb::arg("far").none() = nb::none(), nb::arg("crowded") = false)
      .def("plan", &Runner::plan, nb::arg("stages"), nb::arg("steps"), nb::arg("operands"), nb::arg("waits"),
           nb::arg("slices"), nb::arg("stride"), nb::arg("itemsize"), nb::arg("dtype"), nb::arg("op"),
           nb::arg("divisor"), nb::arg("peer_stride"), nb::arg("streams"), nb::arg("set_bytes"), nb::arg("fingerprint"), nb::arg("text"), nb::arg("size_bytes") = 0)
      .def("run", &Runner::run, nb::arg("plan"), nb::arg("input"), nb::arg("output"), nb::arg("timeout_s"))
      .def("remember", &Runner::remember, nb::arg("name"), nb::arg("algorithm"), nb::arg("more"), nb::arg("source").none(),
           nb::arg("target").none(), nb::arg("plan"), nb::arg("reads"), nb::arg("result_dtype").none(), nb::arg("result_shape"),
           nb::arg("timeout_s"), nb::arg("last_algorithm"))
      .def("forget", &Runner::forget)
      .def("repeat", &Runner::repeat, nb::arg("name"), nb::arg("algorithm"), nb::arg("more"), nb::arg("source").none(),
           nb::arg("target").none(), nb::arg("timeout_s").none())
      .def_rw("last_algorithm", &Runner::last_algorithm)
      .def("run_traced", &Runner::run_traced, nb::arg("plan"), nb::arg("input"), nb::arg("output"), nb::arg("timeout_s"))
      .def("records", &Runner::records, nb::arg("plan"))
      .def("submit", &Runner::submit, nb::arg("plan"), nb::arg("input"), nb::arg("output"), nb::arg("timeout_s"),
           nb::arg("conclude").none())
      .def("message", &Runner::message, nb::arg("receives"), nb::arg("address"), nb::arg("bytes"), nb::arg("dtype"),
           nb::arg("peer"), nb::arg("tag"), nb::arg("timeout_s"), nb::arg("waits"), nb::arg("conclude").none())
      .def("states", &Runner::states)
      .def("ending", &Runner::ending, nb::arg("rank"))
      .def("left", &Runner::left, nb::arg("rank"))
      .def("control", &Runner::control)
      .def("close", &Runner::close, nb::arg("limit_s"), nb::arg("how") = static_cast<int>(Left::closed), nb::arg("ending") = "")
      .def("broken", &Runner::broken)
      .def("distances_ns", &Runner::distances_ns)
      .def("writes_past_caches", &Runner::writes_past_caches)
      .def_prop_ro("call", &Runner::call)
      .def_prop_ro("set_bytes", &Runner::set_bytes);
}
