#include "progress.hpp"

#include <utility>

namespace farandole {

Progress::Progress(Engine& engine, Patience foreground, Patience background)
    : engine_(engine), foreground_(foreground), background_(background) {}

Progress::~Progress() { stop(0); }

Verdict Progress::run(const Plan& plan, const std::byte* input, std::byte* output, double timeout_s,
                      const std::function<bool()>& interrupted, Recording* recording) {
  if (in_flight_.load(std::memory_order_acquire) == 0) {
    const std::function<bool()> ends = [&] { return interrupted() || giving_up_.load(); };
    return carry_out({nullptr, &plan, input, output, timeout_s, recording}, foreground_, ends);
  }
  auto task = std::make_shared<Task>();
  submit(task, plan, input, output, timeout_s, recording);
  while (!task->wait_until(Clock::now() + std::chrono::milliseconds(20))) {
    if (interrupted()) interrupted_.store(true);
  }
  interrupted_.store(false);
  return task->verdict();
}

Verdict Progress::carry_out(const Job& job, Patience patience, const std::function<bool()>& interrupted) {
  std::lock_guard held(engine_mutex_);
  if (closed_ || giving_up_.load()) return {Failure::closed, engine_.rank()};
  in_call_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  engine_.flight().in_background(job.task != nullptr);
  auto verdict = engine_.run(*job.plan, job.input, job.output, job.timeout_s, patience, interrupted, job.recording);
  in_call_.store({}, std::memory_order_relaxed);
  return verdict;
}

void Progress::submit(std::shared_ptr<Task> task, const Plan& plan, const std::byte* input,
                      std::byte* output, double timeout_s, Recording* recording) {
  {
    std::lock_guard held(mutex_);
    if (!stopping_) {
      jobs_.push_back({task, &plan, input, output, timeout_s, recording});
      engine_.flight().queued(in_flight_.fetch_add(1, std::memory_order_acq_rel) + 1);
      if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
      task = nullptr;
    }
  }
  if (task) task->finish({Failure::closed, engine_.rank()});
  changed_.notify_one();
}

void Progress::work() {
  const std::function<bool()> interrupted = [this] { return giving_up_.load() || interrupted_.load(); };
  std::unique_lock held(mutex_);
  while (true) {
    changed_.wait(held, [&] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = jobs_.front();
    held.unlock();
    auto verdict = carry_out(job, background_, interrupted);
    // Only now may a call on another thread pass this one by.
    held.lock();
    jobs_.pop_front();
    engine_.flight().queued(in_flight_.fetch_sub(1, std::memory_order_acq_rel) - 1);
    held.unlock();
    changed_.notify_all();
    std::exchange(job.task, nullptr)->finish(verdict);  // runs, and gives back, what belongs to others: no lock held
    held.lock();
  }
}

void Progress::give_up() {
  engine_.close();
  giving_up_.store(true);
}

void Progress::stop(double limit_s) {
  auto limit = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit_s));
  {
    std::unique_lock held(mutex_);
    stopping_ = true;
    if (in_call_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
      give_up();  // this call holds up all others; it ends when it goes on
      return;
    }
    changed_.wait_until(held, limit, [&] { return jobs_.empty(); });
    if (!jobs_.empty()) give_up();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  while (!engine_mutex_.try_lock()) {
    if (Clock::now() >= limit) give_up();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  closed_ = true;
  engine_mutex_.unlock();
}

}  // namespace farandole
