// Our own walk over the stack of the caller, and that of libgcc.
#pragma once

extern "C" {

// Walks both ways, and ends the process with a message where they differ. From a signal handler,
// also from what was interrupted on. True if ours went to the end by itself.
[[gnu::visibility("default")]] bool same_by_both();

// How many frames the last walk had.
[[gnu::visibility("default")]] unsigned frames_by_both();

// How many frames ours alone finds, where libgcc's would read what it must not.
[[gnu::visibility("default")]] unsigned frames_by_ours();
}
