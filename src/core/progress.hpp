// Calls of one communicator, in order: on the caller's thread while nothing is in flight, otherwise on one
// background thread, which is made for the first asynchronous call and sleeps while there is nothing to do.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "engine.hpp"
#include "task.hpp"

namespace farandole {

class Progress {
 public:
  // `background` is the patience of the background thread, which should leave the cores to the computation.
  Progress(Engine& engine, Patience foreground, Patience background);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Carry out a call now, after those in flight; a `recording` gets what was done when.
  Verdict run(const Plan& plan, const std::byte* input, std::byte* output, double timeout_s,
              const std::function<bool()>& interrupted, Recording* recording = nullptr);

  // Carry out a call in the background, after those in flight. Plan and memory must stay until the task is done.
  void submit(std::shared_ptr<Task> task, const Plan& plan, const std::byte* input, std::byte* output,
              double timeout_s, Recording* recording = nullptr);

  // Let calls in flight end, of whichever thread, but for no longer than `limit_s`; then break the communicator, and stop.
  // May be called from within a call (by a signal handler): then that call ends when it goes on.
  void stop(double limit_s);

 private:
  struct Job {
    std::shared_ptr<Task> task;
    const Plan* plan;
    const std::byte* input;
    std::byte* output;
    double timeout_s;
    Recording* recording;
  };
  Verdict carry_out(const Job& job, Patience patience, const std::function<bool()>& interrupted);
  void work();
  void give_up();

  Engine& engine_;
  Patience foreground_, background_;
  std::mutex engine_mutex_;                   // held by the thread that is in a call
  std::atomic<std::thread::id> in_call_{};    // which one that is
  bool closed_ = false;                       // guarded by engine_mutex_: no more calls
  std::mutex mutex_;         // guards what follows
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // the first is the one being worked on
  std::atomic<std::size_t> in_flight_{0};
  std::atomic<bool> interrupted_{false};  // a thread that waits for the background thread was
  std::atomic<bool> giving_up_{false};    // calls in flight must end, because the communicator is being closed
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace farandole
