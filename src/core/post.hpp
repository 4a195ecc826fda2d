// Point-to-point messages: sends and receives with tags, over one pipe per ordered pair of ranks.
//
// - Messages of one sender to one receiver with one tag arrive in the order in which they were sent.
// - A receive takes the first message that fits it, by sender (or any) and tag. A message for which nobody
//   waits stays in its pipe and holds up the sender, unless the receiver waits for a later one of the same
//   sender: then the message is set aside in the receiver's own memory.
// - Blocking calls move bytes on the caller's thread. Others are moved on by one background thread, which
//   sleeps on the rank's bell; whoever writes into a pipe, or makes room in one, rings the other side's.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "segment.hpp"
#include "task.hpp"

namespace farandole {

inline constexpr int kAnyRank = -1;

struct Header {
  std::uint64_t bytes;
  std::int64_t tag;
  char dtype[16];
};

// A send or a receive, and what came of it.
struct Message {
  Header header;                  // of a receive: the buffer's size; after it: as sent
  std::byte* buffer = nullptr;    // not changed by a send
  int peer = kAnyRank;
  bool receives = false, waits = false;  // whether a thread waits for it
  std::uint64_t number = 0;       // in the flight recorder, until it has ended
  Clock::time_point deadline;
  std::shared_ptr<Task> task;
  std::size_t moved = 0;          // bytes, the header's included
  bool fits = true;               // whether a receive's buffer has the size and dtype of what was sent
};

class Post {
 public:
  Post(std::shared_ptr<Segment> segment, int rank, std::vector<int> process_fds, Patience patience);
  ~Post();
  Post(const Post&) = delete;
  Post& operator=(const Post&) = delete;

  void send(std::shared_ptr<Message> message);
  void receive(std::shared_ptr<Message> message);
  // Move bytes on this thread until the message is done.
  void finish(const std::shared_ptr<Message>& message, const std::function<bool()>& interrupted);
  // Let the background thread move it.
  void leave_to_background();
  // Let sends end, but for no longer than `limit_s`; give up what is not done, and stop.
  void stop(double limit_s);

 private:
  struct Incoming {                     // what is being taken out of one pipe
    bool has_header = false;
    Header header{};
    std::size_t taken = 0;              // bytes of the payload
    std::shared_ptr<Message> into;      // the receive it is for; null while it is set aside
    std::shared_ptr<std::vector<std::byte>> aside;
  };
  struct Aside {                        // a message that came before its receive
    int peer;
    Header header;
    std::shared_ptr<std::vector<std::byte>> bytes;
    bool whole;
    std::shared_ptr<Message> wanted_by;  // a receive that waits for the rest of it
  };

  bool move();                          // true if any byte was moved
  bool push(int peer);
  bool pull(int peer);
  void begin(int peer, Incoming& incoming);
  void hand_over(Message& message, const Header& header, const std::vector<std::byte>& bytes);
  bool take_aside(const std::shared_ptr<Message>& message);
  void give_up_on_the_gone();
  void complete(Message& message, Verdict verdict);
  void wait_for_bell(std::uint32_t seen);
  void work();
  bool idle() const;
  bool has_sends() const;

  std::shared_ptr<Segment> segment_;
  int rank_;
  MessageRecorder recorder_;
  std::vector<int> process_fds_;
  Patience patience_;
  mutable std::mutex mutex_;
  std::vector<std::deque<std::shared_ptr<Message>>> sends_;  // by receiver
  std::deque<std::shared_ptr<Message>> receives_;
  std::vector<Incoming> incoming_;                           // by sender
  std::deque<Aside> aside_;
  std::vector<bool> dead_;
  Clock::time_point next_look_{};
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace farandole
