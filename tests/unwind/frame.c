// A function that calls back from a frame of FRAME_BYTES.
#include <string.h>

__attribute__((visibility("default"))) void call_back(void (*function)(void)) {
  volatile char frame[FRAME_BYTES];
  frame[0] = 1;
  function();
  frame[1] = frame[0];
}
