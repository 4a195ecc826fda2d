#include "progress.hpp"

#include <utility>

namespace farandole {

Progress::Progress(Engine& engine, Patience foreground, Patience background)
    : engine_(engine), foreground_(foreground), background_(background) {}

Progress::~Progress() { stop(0); }

Verdict Progress::run(const Plan& plan, const std::byte* input, std::byte* output, double timeout_s,
                      const std::function<bool()>& interrupted) {
  if (in_flight_.load(std::memory_order_acquire) == 0) {
    std::lock_guard held(engine_mutex_);
    return engine_.run(plan, input, output, timeout_s, foreground_, interrupted);
  }
  auto task = std::make_shared<Task>();
  submit(task, plan, input, output, timeout_s);
  while (!task->wait_until(Clock::now() + std::chrono::milliseconds(20))) {
    if (interrupted()) giving_up_.store(true);
  }
  return task->verdict();
}

void Progress::submit(std::shared_ptr<Task> task, const Plan& plan, const std::byte* input,
                      std::byte* output, double timeout_s) {
  {
    std::lock_guard held(mutex_);
    if (!stopping_) {
      jobs_.push_back({task, &plan, input, output, timeout_s});
      in_flight_.fetch_add(1, std::memory_order_acq_rel);
      if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
      task = nullptr;
    }
  }
  if (task) task->finish({Failure::closed, -1});
  changed_.notify_one();
}

void Progress::work() {
  const std::function<bool()> interrupted = [this] { return giving_up_.load(); };
  std::unique_lock held(mutex_);
  while (true) {
    changed_.wait(held, [&] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = jobs_.front();
    held.unlock();
    Verdict verdict;
    {
      std::lock_guard in_call(engine_mutex_);
      verdict = engine_.run(*job.plan, job.input, job.output, job.timeout_s, background_, interrupted);
    }
    // Only now may a call on another thread pass this one by.
    held.lock();
    jobs_.pop_front();
    in_flight_.fetch_sub(1, std::memory_order_acq_rel);
    held.unlock();
    changed_.notify_all();
    std::exchange(job.task, nullptr)->finish(verdict);  // runs, and gives back, what belongs to others: no lock held
    held.lock();
  }
}

void Progress::stop(double limit_s) {
  auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit_s));
  {
    std::unique_lock held(mutex_);
    stopping_ = true;
    changed_.wait_for(held, limit, [&] { return jobs_.empty(); });
    if (!jobs_.empty()) giving_up_.store(true);
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace farandole
