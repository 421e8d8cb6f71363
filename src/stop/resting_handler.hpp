// The handler that Allod itself has for kStopSignal while no threads are stopped; see
// attach/attach.hpp. A stop replaces it for its time, and it counts as none of the program's.
#pragma once

#include <atomic>

#include "stop/signal_action.hpp"

namespace allod {

inline constinit std::atomic<SignalAction::Handler> resting_handler{nullptr};

}  // namespace allod
