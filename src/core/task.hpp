// A task: a call that goes on in the background. Whoever holds it can ask, or wait, from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "waiting.hpp"

namespace farandole {

class Task {
 public:
  // Called once, on the thread that finished the task, after waiters can see the outcome.
  explicit Task(std::function<void()> when_done = {}) : when_done_(std::move(when_done)) {}

  bool done() const {
    std::lock_guard held(mutex_);
    return done_;
  }
  Verdict verdict() const {
    std::lock_guard held(mutex_);
    return verdict_;
  }
  // False if it is not done by then.
  bool wait_until(Clock::time_point when) const {
    std::unique_lock held(mutex_);
    return changed_.wait_until(held, when, [&] { return done_; });
  }
  void finish(Verdict verdict) {
    {
      std::lock_guard held(mutex_);
      if (done_) return;
      done_ = true;
      verdict_ = verdict;
    }
    changed_.notify_all();
    if (when_done_) when_done_();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  Verdict verdict_;
  std::function<void()> when_done_;
};

}  // namespace farandole
