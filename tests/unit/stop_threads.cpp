// Threads that are stopped, by the system's signals, in what they do.
#include "stop_threads.hpp"

#include <gtest/gtest.h>
#include <poll.h>
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

#include "thread_files.hpp"

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

TEST(StopThreadsTest, who_wakes_up_meanwhile_is_stopped_in_the_next_round) {
  std::atomic<bool> has_ended{false};
  std::atomic<int> times{0};
  std::thread restless{[&] {
    for (; !has_ended; ++times) poll(nullptr, 0, 1);
  }};
  bool have_slept = true;
  while (have_slept) {  // but for once in a while, it is asleep when it is looked at
    const StoppedThreads stopped{Round::first};
    std::this_thread::sleep_for(20ms);
    have_slept = stopped.have_slept();
  }
  {
    const StoppedThreads stopped{Round::again};
    const int before = times;
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(times, before);
    EXPECT_TRUE(stopped.have_slept());
  }
  has_ended = true;
  restless.join();
}

}  // namespace
}  // namespace allod::test
