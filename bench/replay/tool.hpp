// What the tool can do with a trace.
#pragma once

#include "trace.hpp"

namespace replay {

// Prints a summary as one JSON object.
void print_info(const Trace& trace);

// Prints one line for each event in the order of the file: thread, nanoseconds since the start,
// function, addresses, size, alignment. At most so many.
void print_events(const Trace& trace, std::uint64_t most);

// Writes the form that the replay runs (prepared.hpp).
void prepare(const Trace& trace, const char* path);

}  // namespace replay
