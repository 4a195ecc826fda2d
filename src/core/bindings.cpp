// What Python sees of the engine. The only file below which there are no Python objects.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <tuple>

#include "engine.hpp"

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
  check(plan.slices >= 0 && plan.stride >= 1 && plan.itemsize >= 1 && plan.divisor >= 1,
        "a plan needs slices, a stride, an item size and a divisor");
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
      check(operand.rank >= kInput && operand.rank < ranks, "an operand of a rank that does not exist");
      check(operand.rank < 0 ? operand.offset >= 0 : fits(operand.offset, operand.is_partial != 0), "an operand outside the slot");
    }
  }
}

class Runner {
 public:
  Runner(int fd, int rank, int ranks, std::size_t slot_bytes, std::vector<int> process_fds, int spins, int yields, int batch)
      : segment_(std::make_shared<Segment>(fd, ranks, slot_bytes)),
        set_bytes_(slot_bytes / (2 * static_cast<std::size_t>(batch)) / kCacheLine * kCacheLine),
        engine_(segment_, rank, std::move(process_fds), Patience{spins, yields}, batch) {}

  std::shared_ptr<Plan> plan(nb::bytes stages, nb::bytes steps, nb::bytes operands, nb::bytes waits, std::int64_t slices,
                             std::int64_t stride, std::int64_t itemsize, std::string_view dtype, std::string_view op,
                             std::int64_t divisor, std::uint64_t fingerprint, std::string text) const {
    auto plan = std::make_shared<Plan>(Plan{rows<Stage>(stages), rows<Step>(steps), rows<Operand>(operands),
                                            rows<std::int64_t>(waits), slices, stride, itemsize,
                                            static_cast<std::int64_t>(partial_itemsize(dtype, static_cast<std::size_t>(itemsize))),
                                            divisor, op.empty() ? nullptr : find_fold(dtype, op), fingerprint, std::move(text)});
    if (plan->text.size() >= kTextBytes) plan->text.resize(kTextBytes - 1);
    check_plan(*plan, segment_->ranks(), set_bytes_);
    return plan;
  }

  // (failure, peer); (0, -1) where all went well. Raises what a signal handler raised.
  std::tuple<int, int> run(const Plan& plan, std::uintptr_t input, std::uintptr_t output, double timeout_s) {
    static const std::function<bool()> interrupted = [] {
      nb::gil_scoped_acquire held;
      return PyErr_CheckSignals() != 0;
    };
    Verdict verdict;
    {
      nb::gil_scoped_release released;
      verdict = engine_.run(plan, reinterpret_cast<const std::byte*>(input), reinterpret_cast<std::byte*>(output),
                            timeout_s, interrupted);
    }
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return {static_cast<int>(verdict.failure), verdict.peer};
  }

  std::vector<std::tuple<std::uint64_t, std::uint64_t, bool, std::string>> states() const {
    std::vector<std::tuple<std::uint64_t, std::uint64_t, bool, std::string>> result;
    for (auto& s : engine_.states()) result.emplace_back(s.counter, s.call, s.left, s.text);
    return result;
  }

  void fail(int failure, int peer) { engine_.fail(static_cast<Failure>(failure), peer); }
  void leave() { engine_.leave(); }
  std::uint64_t call() const { return engine_.call(); }
  std::size_t set_bytes() const { return set_bytes_; }
  std::tuple<int, int, int> broken() const {
    auto verdict = engine_.broken();
    return {static_cast<int>(verdict.failure), verdict.peer, engine_.broken_by()};
  }

 private:
  std::shared_ptr<Segment> segment_;
  std::size_t set_bytes_;
  Engine engine_;
};

}  // namespace

NB_MODULE(_core, module) {
  module.doc() = "The native engine: runs compiled schedules over memory that processes share.";
  module.attr("CALL_TEXT_BYTES") = kTextBytes;
  module.def("segment_bytes", &Segment::bytes_needed, nb::arg("ranks"), nb::arg("slot_bytes"));
  module.def("instruction_set", &instruction_set);
  module.def(
      "can_fold", [](std::string_view dtype, std::string_view op) { return find_fold(dtype, op) != nullptr; },
      nb::arg("dtype"), nb::arg("op"));
  module.def("partial_itemsize", &partial_itemsize, nb::arg("dtype"), nb::arg("itemsize"));
  nb::class_<Plan>(module, "Plan");
  nb::class_<Runner>(module, "Runner")
      .def(nb::init<int, int, int, std::size_t, std::vector<int>, int, int, int>(), nb::arg("fd"), nb::arg("rank"),
           nb::arg("ranks"), nb::arg("slot_bytes"), nb::arg("process_fds"), nb::arg("spins"), nb::arg("yields"),
           nb::arg("batch"))
      .def("plan", &Runner::plan, nb::arg("stages"), nb::arg("steps"), nb::arg("operands"), nb::arg("waits"),
           nb::arg("slices"), nb::arg("stride"), nb::arg("itemsize"), nb::arg("dtype"), nb::arg("op"),
           nb::arg("divisor"), nb::arg("fingerprint"), nb::arg("text"))
      .def("run", &Runner::run, nb::arg("plan"), nb::arg("input"), nb::arg("output"), nb::arg("timeout_s"))
      .def("states", &Runner::states)
      .def("fail", &Runner::fail, nb::arg("failure"), nb::arg("peer"))
      .def("leave", &Runner::leave)
      .def("broken", &Runner::broken)
      .def_prop_ro("call", &Runner::call)
      .def_prop_ro("set_bytes", &Runner::set_bytes);
}
