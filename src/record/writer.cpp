// Buffers of threads, the trace file, and both at fork, exec and exit.
#include "record/writer.hpp"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libc/completion.hpp"
#include "record/file.hpp"
#include "text/text.hpp"

extern "C" int __cxa_atexit(void (*)(void*), void*, void*) noexcept;

namespace allod::record {

namespace {

// A critical section over the state that threads share. It blocks all signals and cancellation, and
// preserves errno. Threads may nest it: a fork holds it between its handlers.
class Section {
 public:
  Section() noexcept : errno_{errno} {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &signals_);
    acquire();
  }
  ~Section() {
    release();
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
    pthread_setcancelstate(cancel_state_, nullptr);
    errno = errno_;
  }
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

  static void acquire() noexcept {
    if (depth_++ == 0) pthread_mutex_lock(&lock_);
  }
  static void release() noexcept {
    if (--depth_ == 0) pthread_mutex_unlock(&lock_);
  }
  // In the child of a fork, whose only thread held it.
  static void reset() noexcept {
    lock_ = PTHREAD_MUTEX_INITIALIZER;
    depth_ = 0;
  }

 private:
  static inline pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
  static inline thread_local constinit unsigned depth_ = 0;

  int errno_;
  int cancel_state_ = PTHREAD_CANCEL_ENABLE;
  sigset_t signals_;
};

std::uint64_t nanoseconds(clockid_t clock) noexcept {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(time.tv_nsec);
}

// Writes why the trace ended: a reason or an error number.
void tell_why(Text& out, const char* path, const char* reason, int error) noexcept {
  if (path[0] != '\0') out << path << ": ";
  if (reason != nullptr) {
    out << reason;
  } else {
    out << "error " << error;
  }
}

void at_exit(void*) noexcept { Recorder::end(); }
void at_quick_end() noexcept { Recorder::end(); }

}  // namespace

// All functions must be called within a Section.
class Writer {
 public:
  static Thread* attach() noexcept;
  static void flush(Thread& thread) noexcept;
  static void begin() noexcept;
  static void end() noexcept;
  static void before_exec() noexcept;

 private:
  static void start() noexcept;
  static void make_key() noexcept;
  static void stop(const char* reason) noexcept;
  static bool make_file() noexcept;
  static bool write_file_header() noexcept;
  static void write_chunk(Thread& thread, std::uint32_t flags) noexcept;
  static void reset(Thread& thread) noexcept;
  static void name(Thread& thread) noexcept;
  static Thread* recycled() noexcept;
  static void thread_ended(void* thread) noexcept;
  static void fork_begins() noexcept { Section::acquire(); }
  static void fork_ended() noexcept { Section::release(); }
  static void became_child() noexcept;
  static bool is_own_process() noexcept { return getpid() == process_; }
  static void drop_all_but_current(Thread*& list) noexcept;

  static inline bool started_ = false;
  static inline bool attaching_ = false;
  static inline bool ended_ = false;
  static inline bool forked_ = false;
  static inline pid_t process_ = 0;
  static inline std::uint64_t ticks_ = 0;
  static inline std::uint64_t nanoseconds_ = 0;
  static inline std::uint64_t time_ = 0;
  static inline std::uint32_t count_ = 0;
  static inline pthread_key_t key_ = 0;
  static inline bool has_key_ = false;
  // Running threads, and threads that are ending or gone, oldest first.
  static inline Thread* threads_ = nullptr;
  static inline Thread* ending_ = nullptr;
  static inline File file_;
};

constinit Thread Recorder::none_;
alignas(64) constinit std::atomic<const Thread*> Thread::sole_ = nullptr;
thread_local constinit Thread* Recorder::current_ = &Recorder::none_;

void Writer::start() noexcept {
  started_ = true;
  process_ = getpid();
  ticks_ = read_ticks();
  nanoseconds_ = nanoseconds(CLOCK_MONOTONIC);
  time_ = nanoseconds(CLOCK_REALTIME);
  make_key();
}

void Writer::make_key() noexcept {
  if (!has_key_) has_key_ = pthread_key_create(&key_, thread_ended) == 0;
}

void Writer::stop(const char* reason) noexcept {
  if (ended_) return;
  ended_ = true;
  const int error = errno;
  {
    Message message;
    message << "recording stopped: ";
    tell_why(message, file_.path(), reason, error);
  }
  // The program may have closed standard error; the parent may have named another file.
  const char* const errors = secure_getenv("LIBALLOD_RECORD_ERRORS");
  const int file = errors == nullptr ? -1 : open(errors, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return;
  {
    DescriptorText out{file};
    tell_why(out, file_.path(), reason, error);
    out << "\n";
  }
  close(file);
}

void Writer::begin() noexcept {
  if (&allod_complete_libc != nullptr) allod_complete_libc();
  if (!started_) start();
  make_key();
  if (!has_key_) stop("no thread-specific key is left");
  // The handler that is registered first runs last, after the destructors of all libraries.
  __cxa_atexit(at_exit, nullptr, nullptr);
  at_quick_exit(at_quick_end);
  pthread_atfork(fork_begins, fork_ended, became_child);
  const char* base = secure_getenv("LIBALLOD_RECORD");
  if (base == nullptr) return stop("LIBALLOD_RECORD names no file");
  // The first program creates its file at once; others do so when they have events.
  if (!file_.is_made() && file_.create_first(base) && !write_file_header()) stop(explain(errno));
}

bool Writer::make_file() noexcept {
  const char* base = secure_getenv("LIBALLOD_RECORD");
  if (base == nullptr) return false;
  return file_.create(base, static_cast<unsigned>(process_), forked_) && write_file_header();
}

bool Writer::write_file_header() noexcept {
  static struct {
    FileHeader header;
    char text[8192];
  } block;
  std::size_t command = 0;
  const int source = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (source >= 0) {
    const ssize_t count = read(source, block.text, sizeof block.text / 2);
    command = count > 0 ? static_cast<std::size_t>(count) : 0;
    close(source);
  }
  const char* allocator = allocator_path();
  const std::size_t length = strnlen(allocator, sizeof block.text / 2 - 8);
  memcpy(block.text + command, allocator, length);
  const std::size_t bytes = (sizeof(FileHeader) + command + length + 7) / 8 * 8;
  memset(block.text + command + length, 0, bytes - sizeof(FileHeader) - command - length);
  block.header = {.magic = {},
                  .version = kVersion,
                  .bytes = static_cast<std::uint32_t>(bytes),
                  .process = static_cast<std::uint32_t>(process_),
                  .flags = forked_ ? kForked : 0,
                  .ticks = ticks_,
                  .nanoseconds = nanoseconds_,
                  .time = time_,
                  .command_bytes = static_cast<std::uint32_t>(command),
                  .allocator_bytes = static_cast<std::uint32_t>(length)};
  memcpy(block.header.magic, kMagic, sizeof kMagic);
  iovec part{&block, bytes};
  return file_.append(&part, 1);
}

void Writer::write_chunk(Thread& thread, std::uint32_t flags) noexcept {
  if (ended_ || !is_own_process()) return;
  if (!file_.is_made() && !make_file()) return stop(explain(errno));
  const std::uint64_t filled = thread.filled_.load(std::memory_order_acquire);
  ChunkHeader header{.magic = kChunkMagic,
                     .bytes = static_cast<std::uint32_t>(filled),
                     .events = static_cast<std::uint32_t>(filled >> 32U),
                     .thread = thread.number_,
                     .kernel_id = thread.kernel_id_,
                     .flags = flags,
                     .base_ticks = thread.base_ticks_,
                     .ticks = read_ticks(),
                     .nanoseconds = nanoseconds(CLOCK_MONOTONIC)};
  iovec parts[2] = {{&header, sizeof header}, {thread.data(), header.bytes}};
  if (!file_.append(parts, 2)) stop(explain(errno));
}

void Writer::reset(Thread& thread) noexcept {
  thread.base_ticks_ = thread.ticks_;
  thread.unit_ = 0;
  thread.filled_.store(0, std::memory_order_relaxed);
}

void Writer::flush(Thread& thread) noexcept {
  thread.begin_sharing();
  write_chunk(thread, 0);
  reset(thread);
  if (ended_) Recorder::current_ = &Recorder::none_;
}

void Writer::name(Thread& thread) noexcept {
  thread.begin_sharing();
  thread.number_ = ++count_;
  thread.kernel_id_ = static_cast<std::uint32_t>(syscall(SYS_gettid));
  thread.ticks_ = read_ticks();
  reset(thread);
}

Thread* Writer::recycled() noexcept {
  Thread* const oldest = ending_;
  if (oldest == nullptr ||
      syscall(SYS_tgkill, process_, static_cast<pid_t>(oldest->kernel_id_), 0) == 0) {
    return nullptr;
  }
  ending_ = oldest->next_;
  return oldest;
}

Thread* Writer::attach() noexcept {
  if (attaching_) return nullptr;
  attaching_ = true;
  if (!started_) start();
  Thread* thread = nullptr;
  if (!ended_) {
    thread = recycled();
    if (thread == nullptr) {
      void* memory =
          mmap(nullptr, Thread::kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) {
        stop("no memory for the buffer of a thread");
      } else {
        thread = new (memory) Thread;
      }
    }
  }
  if (thread != nullptr) {
    // Leaves room for one event and for the excess of its last 8-byte store.
    thread->limit_ = Thread::kBytes - sizeof(Thread) - kMostEventBytes - sizeof(std::uint64_t);
    thread->ending_ = 0;
    name(*thread);
    thread->next_ = threads_;
    threads_ = thread;
    Recorder::current_ = thread;
    if (has_key_) pthread_setspecific(key_, thread);
  }
  attaching_ = false;
  return thread;
}

// Other thread destructors free memory too, so we ask to be called again until the last round.
// Frees after that are written out at once.
void Writer::thread_ended(void* value) noexcept {
  auto* const thread = static_cast<Thread*>(value);
  if (++thread->ending_ < PTHREAD_DESTRUCTOR_ITERATIONS) {
    thread->busy = true;
    pthread_setspecific(key_, thread);
    thread->busy = false;
    return;
  }
  const Section section;
  write_chunk(*thread, kThreadEnded);
  reset(*thread);
  thread->limit_ = 0;
  Thread** link = &threads_;
  while (*link != thread) link = &(*link)->next_;
  *link = thread->next_;
  thread->next_ = nullptr;
  link = &ending_;
  while (*link != nullptr) link = &(*link)->next_;
  *link = thread;
}

void Writer::end() noexcept {
  if (!started_ || ended_ || !is_own_process()) return;
  Thread* const own = Recorder::current_;
  bool has_events = file_.is_made();
  for (Thread* thread = threads_; thread != nullptr; thread = thread->next_) {
    if (thread->filled_.load(std::memory_order_acquire) == 0) continue;
    has_events = true;
    if (thread != own) write_chunk(*thread, 0);
  }
  // A child without events leaves no file.
  if (has_events) write_chunk(*own, kProcessEnded);
  ended_ = true;
  Recorder::current_ = &Recorder::none_;
}

void Writer::before_exec() noexcept {
  Thread* const own = Recorder::current_;
  if (!started_ || ended_ || own == &Recorder::none_ || !is_own_process()) return;
  // A child that was forked only to exec leaves no file.
  if (!forked_ || file_.is_made()) write_chunk(*own, kExec);
  reset(*own);
}

void Writer::drop_all_but_current(Thread*& list) noexcept {
  for (Thread* thread = list; thread != nullptr;) {
    Thread* const next = thread->next_;
    if (thread != Recorder::current_) munmap(thread, Thread::kBytes);
    thread = next;
  }
  list = nullptr;
}

void Writer::became_child() noexcept {
  Section::reset();
  const Section section;
  process_ = getpid();
  forked_ = true;
  file_.forget();
  count_ = 0;
  drop_all_but_current(threads_);
  drop_all_but_current(ending_);
  ticks_ = read_ticks();
  nanoseconds_ = nanoseconds(CLOCK_MONOTONIC);
  time_ = nanoseconds(CLOCK_REALTIME);
  Thread* const own = Recorder::current_;
  if (own == &Recorder::none_) return;
  name(*own);
  own->next_ = nullptr;
  threads_ = own;
}

void Thread::write_out() noexcept {
  const Section section;
  Writer::flush(*this);
}

Thread* Recorder::bind() noexcept {
  if (current_ != &none_) return nullptr;
  const Section section;
  return Writer::attach();
}

void Recorder::begin() noexcept {
  const Section section;
  Writer::begin();
}

void Recorder::end() noexcept {
  const Section section;
  Writer::end();
}

void Recorder::before_exec() noexcept {
  const Section section;
  Writer::before_exec();
}

namespace {

// After the C library's start, before the program's.
[[gnu::constructor(101)]] void begin_recording() noexcept { Recorder::begin(); }

}  // namespace

}  // namespace allod::record
