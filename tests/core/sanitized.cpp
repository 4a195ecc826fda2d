// The engine without Python, for the sanitizers: ranks are threads over one segment, so that accesses of one rank to what
// another has written are seen, all but writes past the caches. Collectives in the foreground and the background, by way
// of slots and over inputs that all ranks share, messages, and ends of every kind. Half of the ranks write past the caches, the others find
// out how far away the ranks are. Built where FARANDOLE_SANITIZE is set; see scripts/sanitizers.sh.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine.hpp"
#include "post.hpp"
#include "progress.hpp"

using namespace farandole;

namespace {

constexpr int kRanks = 4, kBatch = 2;
constexpr std::size_t kSlotBytes = 16384, kLongest = 20000;
constexpr Patience kPatience{20, 20, 20, Spread::evenly};
const std::function<bool()> kNever = [] { return false; };

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  std::abort();
}

// An all-reduce in one round: each rank publishes its input, and folds those of all. If these are shared, each only says
// that its own is there; they lie one after the other, and the results elsewhere.
Plan all_reduce(std::int64_t length, std::uint64_t fingerprint, bool is_shared = false) {
  constexpr std::int64_t most = static_cast<std::int64_t>(kSlotBytes) / (2 * kBatch) / 4;
  std::int64_t slices = length == 0 ? 1 : (length + most - 1) / most, stride = std::max<std::int64_t>(1, std::min(length, most));
  Plan plan{};
  plan.slices = slices;
  plan.stride = stride;
  plan.itemsize = plan.partial_itemsize = 4;
  plan.set_bytes = static_cast<std::size_t>(stride) * 4;
  plan.is_small = slices == 1 && plan.set_bytes <= kSmallSetBytes;
  plan.divisor = 1;
  plan.fold = find_fold("float32", "sum");
  plan.fingerprint = fingerprint;
  static std::atomic<std::uint64_t> plans{0};
  plan.id = ++plans;
  plan.text = "all_reduce";
  if (is_shared) plan.peer_stride = static_cast<std::int64_t>(kLongest * sizeof(float));
  for (int rank = 0; rank < kRanks; ++rank) {
    plan.operands.push_back({is_shared ? kInput - 1 - rank : rank, 0, 0});
    plan.waits.push_back(rank);
  }
  plan.operands.push_back({kInput, 0, 0});
  plan.steps.push_back({kRanks, 1, stride, length, -1, 0, 0, 0});
  plan.steps.push_back({0, kRanks, stride, length, 0, -1, 0, 1});
  plan.stages.push_back({0, 0, 0, is_shared ? 0 : 1, 0, 1});
  plan.stages.push_back({0, kRanks, 1, 1, 0, 1});
  return plan;
}

struct Rank {
  Rank(std::shared_ptr<Segment> segment, int number, std::vector<int> deaths, float* inputs)
      : inputs(inputs + static_cast<std::size_t>(number) * kLongest),
        engine(segment, number, deaths, kBatch, number % 2 == 0 ? std::optional<bool>(true) : std::nullopt),
        progress(engine, kPatience, kPatience),
        post(segment, number, deaths, kPatience) {}

  void close(double limit_s) {
    progress.stop(limit_s);
    post.stop(limit_s);
    engine.leave(Left::closed);
  }

  float* inputs;  // this rank's, in the array that all share
  Engine engine;
  Progress progress;
  Post post;
};

std::shared_ptr<Message> message(int peer, std::int64_t tag, std::vector<std::byte>& memory, double timeout_s) {
  auto made = std::make_shared<Message>();
  made->header.bytes = memory.size();
  made->header.tag = tag;
  std::strcpy(made->header.dtype, "uint8");
  made->buffer = memory.data();
  made->peer = peer;
  made->deadline = Clock::now() + std::chrono::milliseconds(static_cast<int>(timeout_s * 1000));
  made->task = std::make_shared<Task>();
  return made;
}

void wait_for(const Task& task) {
  while (!task.wait_until(Clock::now() + std::chrono::seconds(1))) {
  }
}

std::vector<float> values(int rank, std::int64_t length, int k) {
  std::vector<float> made(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<float>(i % 97) + static_cast<float>(rank * 3 + k);
  return made;
}

void check(const std::vector<float>& result, int k) {
  for (std::size_t i = 0; i < result.size(); ++i) {
    auto want = kRanks * (static_cast<float>(i % 97) + static_cast<float>(k)) + 3.0f * kRanks * (kRanks - 1) / 2;
    expect(result[i] == want, "the sum");
  }
}

auto at(std::vector<float>& memory) { return reinterpret_cast<std::byte*>(memory.data()); }

// Collectives of two threads of each rank, one after the other, and messages around the ring meanwhile.
void work(Rank& me, int number) {
  std::thread messages([&] {
    for (int k = 0; k < 30; ++k) {
      std::vector<std::byte> out(static_cast<std::size_t>(k * 5003)), in(out.size()), odd(10), got(10);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i + static_cast<std::size_t>(number + k));
      int right = (number + 1) % kRanks, left = (number + kRanks - 1) % kRanks;
      auto first = message(right, 1, out, 60), second = message(right, 2, odd, 60);
      me.post.send(first);
      me.post.send(second);
      me.post.leave_to_background();
      auto after = message(left, 2, got, 60), before = message(k % 2 ? left : kAnyRank, 1, in, 60);
      me.post.receive(after);  // the other one is set aside
      me.post.finish(after, kNever);
      me.post.receive(before);
      me.post.finish(before, kNever);
      expect(before->fits && before->task->verdict().failure == Failure::none, "the message");
      for (std::size_t i = 0; i < in.size(); ++i) {
        expect(in[i] == static_cast<std::byte>(i + static_cast<std::size_t>(left + k)), "the message's bytes");
      }
      wait_for(*first->task);
      wait_for(*second->task);
    }
  });
  for (int k = 0; k < 60; ++k) {
    std::int64_t lengths[] = {1, 14, 15, 512, 1000, 5000, 20000, 0};  // beside the flag, behind it, in slots
    auto length = lengths[k % 8];
    auto plan = all_reduce(length, 5);
    auto one = values(number, length, k), two = values(number, length, k + 1);
    auto task = std::make_shared<Task>();
    if (k % 3 == 0) me.progress.submit(task, plan, at(one), at(one), 60);
    auto verdict = me.progress.run(plan, at(two), at(two), 60, kNever);
    if (k % 3 != 0) me.progress.submit(task, plan, at(one), at(one), 60);
    wait_for(*task);
    expect(verdict.failure == Failure::none && task->verdict().failure == Failure::none, "a call");
    check(one, k);
    check(two, k + 1);
  }
  for (int k = 0; k < 60; ++k) {
    std::int64_t lengths[] = {1, 5000, 20000, 700};
    auto plan = all_reduce(lengths[k % 4], 7, true);
    auto mine = values(number, lengths[k % 4], k), result = mine;
    // As soon as a call is done, its input is overwritten for the next one: nobody may still be reading it.
    std::copy(mine.begin(), mine.end(), me.inputs);
    auto input = reinterpret_cast<const std::byte*>(me.inputs);
    if (k % 3 == 0) {
      auto task = std::make_shared<Task>();
      me.progress.submit(task, plan, input, at(result), 60);
      wait_for(*task);
      expect(task->verdict().failure == Failure::none, "a call in the background over shared inputs");
    } else {
      expect(me.progress.run(plan, input, at(result), 60, kNever).failure == Failure::none, "a call over shared inputs");
    }
    check(result, k);
  }
  messages.join();
}

// Every rank comes to an end: by what rank 0 does, and all others hear of it.
Failure end(Rank& me, int number, int how, int death, std::int64_t length) {
  if (number == 0 && how == 4) {  // as good as dead: it does nothing more, and its handle says so
    eventfd_write(death, 1);
    return Failure::lost;
  }
  auto plan = all_reduce(length, how == 1 && number == 0 ? 6 : 5);
  auto memory = values(number, length, 0), more = memory;
  std::vector<std::byte> room(100000);
  auto waits = message((number + 1) % kRanks, 9, room, 60);
  me.post.receive(waits);
  me.post.leave_to_background();
  auto task = std::make_shared<Task>();
  if (number == 0 && how == 2) {
    me.close(0);
  } else {
    me.progress.submit(task, plan, at(memory), at(memory), how == 0 && number != 0 ? 0.05 : 60);
    if (number == 0 && how == 3) me.close(0);
  }
  std::thread closes;
  if (number == 1) closes = std::thread([&] { std::this_thread::yield(); me.engine.states(); me.engine.distances_ns(); });
  auto last = me.progress.run(plan, at(more), at(more), how == 0 && number != 0 ? 0.05 : 60, kNever).failure;
  if (closes.joinable()) closes.join();
  me.close(0.01);
  if (!(number == 0 && how == 2)) wait_for(*task);
  wait_for(*waits->task);
  return last;
}

void on_all(std::vector<std::unique_ptr<Rank>>& ranks, const std::function<void(Rank&, int)>& each) {
  std::vector<std::thread> threads;
  for (int number = 0; number < kRanks; ++number) {
    threads.emplace_back([&, number] { each(*ranks[static_cast<std::size_t>(number)], number); });
  }
  for (auto& thread : threads) thread.join();
}

void job(int how, std::int64_t length) {
  int fd = memfd_create("sanitized", MFD_CLOEXEC);
  expect(fd >= 0 && ftruncate(fd, static_cast<off_t>(Segment::bytes_needed(kRanks, kSlotBytes))) == 0, "memory");
  auto segment = std::make_shared<Segment>(fd, kRanks, kSlotBytes);
  ::close(fd);
  std::vector<float> inputs(kRanks * kLongest);
  std::vector<std::unique_ptr<Rank>> ranks;
  int death = eventfd(0, EFD_CLOEXEC);
  for (int number = 0; number < kRanks; ++number) {
    std::vector<int> deaths(kRanks, -1);
    if (number != 0) deaths[0] = death;
    ranks.push_back(std::make_unique<Rank>(segment, number, deaths, inputs.data()));
  }
  on_all(ranks, work);
  on_all(ranks, [=](Rank& me, int number) {
    auto failure = end(me, number, how, death, length);
    if (how == 1) expect(failure == Failure::mismatch, "a mismatch is one on every rank");
    if (how >= 2) expect(failure != Failure::none, "a rank that closes is heard of");
    if (how == 4) expect(failure == Failure::lost || failure == Failure::closed, "a rank that dies is lost");
  });
  ::close(death);
}

}  // namespace

int main() {
  for (int how = 0; how < 5; ++how) {
    for (std::int64_t length : {3000, 100}) job(how, length);
    std::printf("end %d: right\n", how);
  }
}
