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
  // `conclude` is called, if all went well, on the thread that finished the task, before anyone can see that it is done.
  explicit Task(std::function<void()> conclude = {}) : conclude_(std::move(conclude)) {}

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
    std::function<void()> conclude;
    {
      std::lock_guard held(mutex_);
      if (finishing_) return;
      finishing_ = true;
      conclude.swap(conclude_);
    }
    if (conclude && verdict.failure == Failure::none) conclude();
    {
      std::lock_guard held(mutex_);
      done_ = true;
      verdict_ = verdict;
    }
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool finishing_ = false, done_ = false;
  Verdict verdict_;
  std::function<void()> conclude_;
};

}  // namespace farandole
