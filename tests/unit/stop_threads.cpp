// Threads that are stopped, by the system's signals, in what they do.
#include "stop/stop_threads.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <ostream>
#include <thread>

#include "image/thread_files.hpp"

namespace allod::test {
namespace {

using Round = StoppedThreads::Round;
using namespace std::chrono_literals;

timespec time_of(int ms) { return {ms / 1000, ms % 1000 * 1'000'000}; }

int receive(int ms) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0) abort();
  const timeval time{ms / 1000, ms % 1000 * 1000};
  setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  char byte = 0;
  const auto result = static_cast<int>(recv(ends[0], &byte, 1, 0));
  const int error = errno;
  close(ends[0]);
  close(ends[1]);
  errno = error;
  return result;
}
int wait_for_set(int ms) {
  const timespec time = time_of(ms);
  const int set = semget(IPC_PRIVATE, 1, 0600);
  sembuf down{0, -1, 0};
  const int result = semtimedop(set, &down, 1, &time);
  const int error = errno;
  semctl(set, 0, IPC_RMID);
  errno = error;
  return result;
}
int wait_for_events(int ms) {
  const int events = epoll_create1(0);
  epoll_event event{};
  const int result = epoll_wait(events, &event, 1, ms);
  const int error = errno;
  close(events);
  errno = error;
  return result;
}

int wait_for_semaphore(int ms) {
  sem_t semaphore;
  sem_init(&semaphore, 0, 0);
  timespec end{};
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += ms / 1000 + 1;
  return sem_timedwait(&semaphore, &end);
}
int wait_for_signal(int ms) {
  const timespec time = time_of(ms);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  return sigtimedwait(&set, nullptr, &time);
}
int wait_in_ppoll(int ms) {
  const timespec time = time_of(ms);
  return ppoll(nullptr, 0, &time, nullptr);
}
int wait_in_pselect(int ms) {
  const timespec time = time_of(ms);
  return pselect(0, nullptr, nullptr, nullptr, &time, nullptr);
}
int sleep_for(int ms) {
  const timespec time = time_of(ms);
  return nanosleep(&time, nullptr);
}

// A call that sleeps for so many milliseconds, and would end when a signal comes.
struct Call {
  const char* name;
  int (*make)(int ms);
};
std::ostream& operator<<(std::ostream& out, const Call& call) { return out << call.name; }

const Call kCalls[] = {
    {"poll", [](int ms) { return poll(nullptr, 0, ms); }},
    {"ppoll", &wait_in_ppoll},
    {"pselect", &wait_in_pselect},
    {"epoll_wait", &wait_for_events},
    {"nanosleep", &sleep_for},
    {"semtimedop", &wait_for_set},
    {"recv", &receive},
    {"sem_timedwait", &wait_for_semaphore},
    {"sigtimedwait", &wait_for_signal},
};

class StopThreads : public testing::TestWithParam<Call> {};

// Was the call interrupted, when threads were stopped in the midst of it?
bool is_interrupted(const Call& call, int ms, Round round) {
  std::atomic<std::uint32_t> id{0};
  bool was_interrupted = false;
  std::thread sleeper{[&] {
    id = static_cast<std::uint32_t>(gettid());
    errno = 0;
    was_interrupted = call.make(ms) == -1 && errno == EINTR;
  }};
  while (id == 0 || !ThreadFile{id, "/status"}.has("\nState:\tS")) std::this_thread::yield();
  {
    const StoppedThreads stopped{round};
  }
  sleeper.join();
  return was_interrupted;
}

TEST_P(StopThreads, who_sleeps_is_let_sleep_in_the_first_round) {
  EXPECT_FALSE(is_interrupted(GetParam(), 300, Round::first));
}
TEST_P(StopThreads, who_sleeps_is_stopped_where_there_is_one_round_only) {
  EXPECT_TRUE(is_interrupted(GetParam(), 600'000, Round::only));
}
INSTANTIATE_TEST_SUITE_P(Calls, StopThreads, testing::ValuesIn(kCalls),
                         [](const auto& each) { return std::string{each.param.name}; });

// It sleeps again, in another call, when threads are stopped the second time.
TEST(StopThreadsTest, who_has_run_between_two_rounds_is_let_sleep_in_the_second) {
  std::atomic<std::uint32_t> id{0};
  std::atomic<int> calls{0};
  int interrupted = 0;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  std::thread restless{[&] {
    id = static_cast<std::uint32_t>(gettid());
    for (int i = 0; i < 2; ++i) {
      ++calls;
      pollfd end{ends[0], POLLIN, 0};
      interrupted += poll(&end, 1, -1) == -1 && errno == EINTR;
      char byte = 0;
      static_cast<void>(recv(ends[0], &byte, 1, MSG_DONTWAIT));
    }
  }};
  const auto wake = [&] { ASSERT_EQ(send(ends[1], "x", 1, 0), 1); };
  const auto sleeps_in = [&](int call) {
    return id != 0 && calls == call && ThreadFile{id, "/status"}.has("\nState:\tS");
  };
  while (!sleeps_in(1)) std::this_thread::yield();
  {
    const StoppedThreads stopped{Round::first};
    EXPECT_TRUE(stopped.have_slept());
    wake();
    while (!sleeps_in(2)) std::this_thread::yield();
    EXPECT_FALSE(stopped.have_slept());
  }
  {
    const StoppedThreads stopped{Round::again};
    EXPECT_TRUE(stopped.have_slept());
  }
  wake();
  restless.join();
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(interrupted, 0);
}

// The bytes make it ready to run long before it does, for the only processor is taken: a signal
// would end the call, which has what it waits for.
TEST(StopThreadsTest, who_was_woken_and_waits_for_a_processor_is_let_end_its_call) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int i = 0; CPU_COUNT(&one) == 0; ++i) {
    if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
  }
  sched_setaffinity(0, sizeof one, &one);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const timeval time{600, 0};
  setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  std::atomic<std::uint32_t> id{0};
  int interrupted = 0;
  constexpr int kBytes = 100;
  std::thread reader{[&] {
    const sched_param none{};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);  // it does not preempt who wakes it
    id = static_cast<std::uint32_t>(gettid());
    for (int got = 0; got < kBytes;) {
      char byte = 0;
      const auto result = recv(ends[0], &byte, 1, 0);
      got += static_cast<int>(result == 1);
      interrupted += result == -1 && errno == EINTR;
    }
  }};
  for (int i = 0; i < kBytes; ++i) {
    while (id == 0 || !ThreadFile{id, "/status"}.has("\nState:\tS")) std::this_thread::yield();
    ASSERT_EQ(send(ends[1], "x", 1, 0), 1);
    const StoppedThreads stopped{Round::first};
  }
  reader.join();
  sched_setaffinity(0, sizeof all, &all);
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(interrupted, 0);
}

}  // namespace
}  // namespace allod::test
