// How the ranks should be spread over the cores, and whether others are busy there.
#pragma once

#include "segment.hpp"

namespace farandole {

// A core each; or, as there are too few, as many ranks on each core; or wherever they are.
enum class Spread { as_it_is, apart, evenly };

// Whether more tasks run on this machine than should: one for each core or, where there are more ranks, those ranks that do
// not sleep. Where the ranks may use some cores only, tasks on others count as well: it is the whole machine that is asked.
bool are_others_busy(const Segment& segment, Spread spread);

}  // namespace farandole
