#include "post.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "copy.hpp"
#include "yielding.hpp"

namespace farandole {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(10);
constexpr std::uint64_t kLongest = std::uint64_t{1} << 46;  // no message is that long; a larger size is damage

bool same_kind(const Header& a, const Header& b) {
  return a.bytes == b.bytes && std::memcmp(a.dtype, b.dtype, sizeof a.dtype) == 0;
}

}  // namespace

Post::Post(std::shared_ptr<Segment> segment, int rank, std::vector<int> process_fds, Patience patience)
    : segment_(std::move(segment)),
      rank_(rank),
      recorder_(segment_->flight(rank)),
      process_fds_(std::move(process_fds)),
      patience_(patience),
      sends_(static_cast<std::size_t>(segment_->ranks())),
      incoming_(static_cast<std::size_t>(segment_->ranks())),
      dead_(static_cast<std::size_t>(segment_->ranks()), false) {}

Post::~Post() { stop(0); }

void Post::send(std::shared_ptr<Message> message) {
  std::lock_guard held(mutex_);
  recorder_.begin(*message, false);
  if (stopping_) return complete(*message, {Failure::closed, rank_});
  sends_[static_cast<std::size_t>(message->peer)].push_back(std::move(message));
}

void Post::receive(std::shared_ptr<Message> message) {
  std::lock_guard held(mutex_);
  recorder_.begin(*message, true);
  if (stopping_) return complete(*message, {Failure::closed, rank_});
  if (!take_aside(message)) receives_.push_back(std::move(message));
}

bool Post::has_sends() const {
  return std::any_of(sends_.begin(), sends_.end(), [](auto& queue) { return !queue.empty(); });
}

bool Post::idle() const {
  auto unfinished = [](const Incoming& incoming) { return incoming.into || incoming.aside; };
  return receives_.empty() && std::none_of(incoming_.begin(), incoming_.end(), unfinished) && !has_sends();
}

// Give a receive the first message that was set aside and fits it; true if there is one.
bool Post::take_aside(const std::shared_ptr<Message>& message) {
  for (auto it = aside_.begin(); it != aside_.end(); ++it) {
    bool fits = (message->peer == kAnyRank || message->peer == it->peer) && message->header.tag == it->header.tag;
    if (!fits || it->wanted_by) continue;
    message->peer = it->peer;
    if (it->whole) {
      hand_over(*message, it->header, *it->bytes);
      aside_.erase(it);
    } else {
      it->wanted_by = message;
    }
    return true;
  }
  return false;
}

void Post::hand_over(Message& message, const Header& header, const std::vector<std::byte>& bytes) {
  message.fits = same_kind(message.header, header);
  if (message.fits && !bytes.empty()) copy_bytes(message.buffer, bytes.data(), bytes.size());
  message.header = header;
  complete(message, {});
}

void Post::complete(Message& message, Verdict verdict) {
  recorder_.end(message, static_cast<std::uint8_t>(verdict.failure));
  message.task->finish(verdict);
}

bool Post::push(int peer) {
  auto& queue = sends_[static_cast<std::size_t>(peer)];
  if (queue.empty()) return false;
  auto& pipe = segment_->pipe(rank_, peer);
  bool moved = false;
  while (!queue.empty()) {
    auto& message = *queue.front();
    std::size_t total = sizeof(Header) + message.header.bytes, step = 0;
    if (message.moved == 0 && pipe.writable() < sizeof(Header)) break;
    if (message.moved == 0) {
      step = pipe.write(reinterpret_cast<const std::byte*>(&message.header), sizeof(Header));
    } else {
      step = pipe.write(message.buffer + (message.moved - sizeof(Header)), total - message.moved);
    }
    message.moved += step;
    moved = moved || step != 0;
    if (message.moved == total) {
      complete(message, {});
      queue.pop_front();
    } else if (step == 0) {
      break;
    }
  }
  if (moved) ring(segment_->bell(peer));
  return moved;
}

// Decide where the message whose header has come goes: to a receive, aside, or nowhere yet.
void Post::begin(int peer, Incoming& incoming) {
  bool others = false;
  for (auto it = receives_.begin(); it != receives_.end(); ++it) {
    auto& wanted = **it;
    if (wanted.peer != kAnyRank && wanted.peer != peer) continue;
    if (wanted.header.tag != incoming.header.tag) {
      others = true;
      continue;
    }
    incoming.into = *it;
    receives_.erase(it);
    wanted.peer = peer;
    wanted.fits = same_kind(wanted.header, incoming.header);
    wanted.header = incoming.header;
    return;
  }
  if (!others) return;
  try {
    incoming.aside = std::make_shared<std::vector<std::byte>>(incoming.header.bytes);
  } catch (const std::bad_alloc&) {
    return;  // it stays in its pipe, and holds up what comes after it, until somebody receives it or the time is up
  }
  aside_.push_back({peer, incoming.header, incoming.aside, false, nullptr});
}

bool Post::pull(int peer) {
  auto& pipe = segment_->pipe(peer, rank_);
  auto& incoming = incoming_[static_cast<std::size_t>(peer)];
  bool moved = false;
  while (true) {
    if (!incoming.has_header) {
      if (pipe.readable() < sizeof(Header)) break;
      pipe.take(reinterpret_cast<std::byte*>(&incoming.header), sizeof(Header));
      incoming.has_header = moved = true;
      if (incoming.header.bytes > kLongest) {
        segment_->break_with(rank_, peer, Failure::mismatch, false);
        break;
      }
    }
    if (!incoming.into && !incoming.aside) begin(peer, incoming);
    if (!incoming.into && !incoming.aside) break;
    std::byte* to = incoming.aside ? incoming.aside->data() : incoming.into->fits ? incoming.into->buffer : nullptr;
    if (to != nullptr) to += incoming.taken;
    auto step = pipe.take(to, incoming.header.bytes - incoming.taken);
    incoming.taken += step;
    moved = moved || step != 0;
    if (incoming.taken < incoming.header.bytes) {
      if (step == 0) break;
      continue;
    }
    if (incoming.into) {
      complete(*incoming.into, {});
    } else {
      auto it = std::find_if(aside_.begin(), aside_.end(), [&](auto& a) { return a.bytes == incoming.aside; });
      it->whole = true;
      if (it->wanted_by) {
        hand_over(*it->wanted_by, it->header, *it->bytes);
        aside_.erase(it);
      }
    }
    incoming = {};
  }
  if (moved) ring(segment_->bell(peer));
  return moved;
}

bool Post::move() {
  bool moved = false;
  if (stopping_) return false;  // what is not done belongs to its owners again
  for (int peer = 0; peer < segment_->ranks(); ++peer) {
    if (peer == rank_) continue;
    moved = push(peer) || moved;
    moved = pull(peer) || moved;
  }
  return moved;
}

// End what can no more be done: its time is up, its peer is gone, or the communicator is broken.
void Post::give_up_on_the_gone() {
  auto now = Clock::now();
  if (now < next_look_) return;
  next_look_ = now + kLookEvery;
  find_dead(process_fds_, dead_);
  auto broken = segment_->broken();
  auto gone = [&](int peer) {
    auto left = static_cast<Left>(segment_->line(peer).left.load(std::memory_order_acquire));
    if (left != Left::no) return left == Left::failed ? Failure::lost : Failure::closed;
    return dead_[static_cast<std::size_t>(peer)] ? Failure::lost : Failure::none;
  };
  // Of a rank that has gone, what it sent may still be in its pipe. Look there after seeing that it has gone.
  auto is_over = [&](int peer, bool receives) -> Verdict {
    auto why = gone(peer);
    bool more = why == Failure::none || (receives && segment_->pipe(peer, rank_).readable() != 0);
    return more ? Verdict{} : Verdict{why, peer};
  };
  auto judge = [&](const Message& message, bool receives) -> Verdict {
    if (broken.failure != Failure::none) return broken;
    Verdict over{};
    if (message.peer != kAnyRank) {
      over = is_over(message.peer, receives);
    } else {
      for (int peer = 0; peer < segment_->ranks(); ++peer) {
        if (peer == rank_) continue;
        over = is_over(peer, receives);
        if (over.failure == Failure::none) break;
      }
    }
    if (over.failure != Failure::none) return over;
    return now >= message.deadline ? Verdict{Failure::late, message.peer} : Verdict{};
  };
  for (auto& queue : sends_) {
    for (auto it = queue.begin(); it != queue.end();) {
      auto verdict = judge(**it, false);
      if (verdict.failure == Failure::none) {
        ++it;
        continue;
      }
      // Half a message would make nonsense of what follows it.
      if ((*it)->moved != 0) segment_->break_with(rank_, verdict.peer, verdict.failure);
      complete(**it, verdict);
      it = queue.erase(it);
    }
  }
  for (auto it = receives_.begin(); it != receives_.end();) {
    auto verdict = judge(**it, true);
    if (verdict.failure == Failure::none) {
      ++it;
    } else {
      complete(**it, verdict);
      it = receives_.erase(it);
    }
  }
  for (auto& incoming : incoming_) {
    auto& message = incoming.into;
    if (!message || message->task->done()) continue;
    auto verdict = judge(*message, true);
    if (verdict.failure == Failure::none) continue;
    complete(*message, verdict);
    message = std::make_shared<Message>(*message);  // what is left of it is taken out, and thrown away
    message->fits = false;
    message->task = std::make_shared<Task>();
    complete(*message, verdict);
  }
  for (auto& aside : aside_) {
    if (!aside.wanted_by) continue;
    auto verdict = judge(*aside.wanted_by, true);
    if (verdict.failure == Failure::none) continue;
    complete(*aside.wanted_by, verdict);
    aside.wanted_by = nullptr;  // the message is for the next receive
  }
}

void Post::wait_for_bell(std::uint32_t seen) {
  auto& bell = segment_->bell(rank_);
  auto quiet = [&] { return bell.rings.load(std::memory_order_acquire) == seen; };
  for (int i = 0; quiet() && i < patience_.spins; ++i) pause();
  if (!quiet()) return;
  Yielded yielded;
  for (int i = 0; quiet() && i < patience_.yields && give_way(yielded, *segment_, patience_.spread); ++i) continue;
  if (quiet()) listen(bell, seen);
}

void Post::finish(const std::shared_ptr<Message>& message, const std::function<bool()>& interrupted) {
  std::uint64_t since = 0;  // when the wait before this look began
  while (true) {
    auto seen = segment_->bell(rank_).rings.load(std::memory_order_acquire);
    bool moved = false, asks = false;
    {
      std::lock_guard held(mutex_);
      if (since != 0) recorder_.waited(since);
      moved = move();
      asks = Clock::now() >= next_look_;
      if (!message->task->done() && !moved) give_up_on_the_gone();
    }
    if (message->task->done()) return;
    if (moved) {
      since = 0;
      continue;
    }
    since = ticks();
    wait_for_bell(seen);
    if (asks && interrupted()) {
      segment_->break_with(rank_, rank_, Failure::interrupted);
      std::lock_guard held(mutex_);
      next_look_ = {};
      give_up_on_the_gone();
    }
  }
}

void Post::leave_to_background() {
  {
    std::lock_guard held(mutex_);
    if (!thread_.joinable() && !stopping_) thread_ = std::thread([this] { work(); });
  }
  changed_.notify_one();
  ring(segment_->bell(rank_));
}

void Post::work() {
  while (true) {
    std::uint32_t seen = 0;
    bool moved = false;
    {
      std::unique_lock held(mutex_);
      changed_.wait(held, [&] { return stopping_ || !idle(); });
      if (stopping_) return;
      seen = segment_->bell(rank_).rings.load(std::memory_order_acquire);
      moved = move();
      if (!moved) give_up_on_the_gone();
    }
    if (!moved) listen(segment_->bell(rank_), seen);
  }
}

void Post::stop(double limit_s) {
  auto limit = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit_s));
  while (Clock::now() < limit) {
    auto seen = segment_->bell(rank_).rings.load(std::memory_order_acquire);
    {
      std::lock_guard held(mutex_);
      if (!has_sends()) break;
      if (move()) continue;
      give_up_on_the_gone();
    }
    listen(segment_->bell(rank_), seen);
  }
  {
    std::lock_guard held(mutex_);
    stopping_ = true;
    for (auto& queue : sends_) {
      for (auto& message : queue) complete(*message, {Failure::closed, rank_});
      queue.clear();
    }
    for (auto& message : receives_) complete(*message, {Failure::closed, rank_});
    receives_.clear();
    for (auto& incoming : incoming_) {
      if (incoming.into) complete(*incoming.into, {Failure::closed, rank_});
    }
    for (auto& aside : aside_) {
      if (aside.wanted_by) complete(*aside.wanted_by, {Failure::closed, rank_});
    }
  }
  changed_.notify_all();
  ring(segment_->bell(rank_));
  if (thread_.joinable()) thread_.join();
}

}  // namespace farandole
