// The thread of our own that gives memory back, by the thread library.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#include "allod/os/plain_helper.hpp"

namespace allod::os {

// Both systems make threads without calling malloc. No signal of the program arrives there.
struct BsdThreads {
  [[nodiscard]] static bool start(void (*run)() noexcept) noexcept {
    pthread_attr_t wishes;
    if (pthread_attr_init(&wishes) != 0) return false;
    pthread_attr_setdetachstate(&wishes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&wishes, kStackBytes);
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    const int failed = pthread_create(&thread, &wishes, &enter, reinterpret_cast<void*>(run));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&wishes);
    return failed == 0;
  }
  static void yield() noexcept { sched_yield(); }
  static void nap() noexcept {
    constexpr timespec kMillisecond{0, 1'000'000};
    nanosleep(&kMillisecond, nullptr);
  }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{128} << 10;

  static void* enter(void* run) noexcept {
    reinterpret_cast<void (*)() noexcept>(run)();
    return nullptr;
  }
};

using BsdHelper = PlainHelper<BsdThreads>;

}  // namespace allod::os
