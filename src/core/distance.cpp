#include "distance.hpp"

#include <algorithm>
#include <utility>

#include "copy.hpp"
#include "recording.hpp"

namespace farandole {
namespace {

// To find out takes up to a microsecond: in calls that take long anyway always, in shorter ones now and then.
constexpr std::uint64_t kAlwaysFromBytes = std::uint64_t{256} << 10, kEvery = 8;
constexpr std::uint64_t kKnownFor = 16;  // due calls for each rank, without another look
constexpr std::int64_t kOwnNs = 25;       // what takes no longer is still in this core's caches

std::int64_t clock_costs_ns() {
  std::int64_t least = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    auto begin_ns = clock_ns();
    least = std::min(least, clock_ns() - begin_ns);
  }
  return least;
}

}  // namespace

Distances::Distances(std::shared_ptr<Segment> segment, int rank, std::optional<bool> said)
    : segment_(std::move(segment)),
      rank_(rank),
      said_(can_pass_caches() ? said : std::optional<bool>(false)),
      seen_(static_cast<std::size_t>(segment_->ranks())),
      clock_costs_ns_(clock_costs_ns()),
      far_(said_.value_or(false)) {}

bool Distances::is_due(std::uint64_t bytes) {
  if (calls_++ % kEvery != 0 && bytes < kAlwaysFromBytes) return false;
  ++due_;
  decide();
  return true;
}

// Each line says which one comes next: none can be read before the one before it.
void Distances::leave_trail() const {
  auto& trail = segment_->trail(rank_);
  for (std::size_t i = 0; i < kTrailLines; ++i) {
    trail.lines[kTrailOrder[i]].next.store(kTrailOrder[(i + 1) % kTrailLines], std::memory_order_relaxed);
  }
}

// How long it takes to read a line of that rank's trail.
std::int64_t Distances::line_ns(int rank) const {
  auto& trail = segment_->trail(rank);
  auto follow = [&](std::uint64_t at) { return trail.lines[at % kTrailLines].next.load(std::memory_order_acquire); };
  auto at = follow(kTrailOrder[0]);  // is not timed: its page may have to be found first
  auto begin_ns = clock_ns();
  for (std::size_t i = 1; i < kTrailLines; ++i) at = follow(at);
  auto took_ns = std::max<std::int64_t>(clock_ns() - begin_ns - clock_costs_ns_, 0);
  return took_ns / static_cast<std::int64_t>(kTrailLines - 1) + 1;
}

void Distances::follow_one(const std::int64_t* peers, std::size_t count) {
  auto longest_ago = [&](std::int64_t a, std::int64_t b) {
    return seen_[static_cast<std::size_t>(a)].tried < seen_[static_cast<std::size_t>(b)].tried;
  };
  auto peer = static_cast<int>(*std::min_element(peers, peers + count, longest_ago));
  auto& seen = seen_[static_cast<std::size_t>(peer)];
  seen.tried = due_;
  // Where many ranks move much, what they wrote last may be in no cache any more: then it says nothing.
  if (peer == rank_ || line_ns(rank_) > kOwnNs) return;
  seen.when = due_;
  seen.last[seen.count++ % kKept] = line_ns(peer);
  auto kept = seen.last;
  auto known = static_cast<std::ptrdiff_t>(std::min(seen.count, kKept)), middle = (known - 1) / 2;
  std::nth_element(kept.begin(), kept.begin() + middle, kept.begin() + known);
  seen.median.store(kept[static_cast<std::size_t>(middle)], std::memory_order_relaxed);
  decide();
}

std::int64_t Distances::own_farthest_ns() const {
  if (said_) return *said_ ? kFarNs + 1 : kNearNs;
  std::int64_t farthest_ns = 0;
  for (auto& seen : seen_) {
    bool is_known = seen.when + kKnownFor * seen_.size() >= due_;
    if (is_known) farthest_ns = std::max(farthest_ns, seen.median.load(std::memory_order_relaxed));
  }
  return farthest_ns;
}

void Distances::decide() {
  auto farthest_ns = own_farthest_ns();
  if (farthest_ns != 0) {
    segment_->trail(rank_).farthest_ns.store(farthest_ns, std::memory_order_relaxed);
  } else {
    for (int rank = 0; rank < segment_->ranks(); ++rank) {
      farthest_ns = std::max(farthest_ns, segment_->trail(rank).farthest_ns.load(std::memory_order_relaxed));
    }
  }
  far_.store(farthest_ns > (far() ? kNearNs : kFarNs), std::memory_order_relaxed);
}

std::vector<std::int64_t> Distances::ns() const {
  std::vector<std::int64_t> medians;
  for (auto& seen : seen_) medians.push_back(seen.median.load(std::memory_order_relaxed));
  return medians;
}

}  // namespace farandole
