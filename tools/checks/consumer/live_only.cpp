// A user's program that starts the live page, and calls nothing else of Allod. Ends with success if
// the page is served.
#include <allod-live.h>

int main() {
  if (allod::live::start(nullptr, 0) != 0) return 1;
  return allod::live::link() == nullptr;
}
