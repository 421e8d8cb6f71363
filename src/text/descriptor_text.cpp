// Text to descriptors of Linux.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#include "allod/base/base.hpp"
#include "text/text.hpp"

namespace allod {

namespace {

long to_long(const void* pointer) noexcept { return reinterpret_cast<long>(pointer); }

// Suppresses SIGPIPE and SIGXFSZ for the calling thread's writes during its lifetime. It consumes a
// signal that a write raises, unless the same signal was pending before.
class NoSignals {
 public:
  NoSignals() noexcept {
    change_mask(SIG_BLOCK, &kBoth, &before_);
    if ((before_ & kBoth) == 0) return;
    raw_syscall(SYS_rt_sigpending, to_long(&waiting_), sizeof waiting_);
    waiting_ &= before_;
  }
  ~NoSignals() { change_mask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

  // To be called after a failed write.
  void take_back(long error) const noexcept {
    const Mask sent = error == -EPIPE ? kPipe : error == -EFBIG ? kTooLong : 0;
    if (sent == 0 || (waiting_ & sent) != 0) return;
    constexpr timespec kAtOnce{};
    raw_syscall(SYS_rt_sigtimedwait, to_long(&sent), 0, to_long(&kAtOnce), sizeof(Mask));
  }

 private:
  using Mask = std::uint64_t;
  static constexpr Mask kPipe = Mask{1} << (SIGPIPE - 1);
  static constexpr Mask kTooLong = Mask{1} << (SIGXFSZ - 1);
  static constexpr Mask kBoth = kPipe | kTooLong;

  static void change_mask(int how, const Mask* mask, Mask* before) noexcept {
    raw_syscall(SYS_rt_sigprocmask, how, to_long(mask), to_long(before), sizeof(Mask));
  }

  Mask before_ = 0;
  Mask waiting_ = 0;  // those of the two that were pending before
};

// Bounds the wait for a full non-blocking descriptor.
class Patience {
 public:
  // Returns false once the descriptor has taken nothing for the whole time.
  bool wait_for(int descriptor) noexcept {
    if (++waits_ > kMostWaits) return false;
    pollfd one{descriptor, POLLOUT, 0};
    for (;;) {
      // The kernel subtracts the time that has passed.
      const long ready = raw_syscall(SYS_ppoll, to_long(&one), 1, to_long(&left_), 0, 0);
      if (ready != -EINTR) return ready > 0;
    }
  }

 private:
  static constexpr int kMostWaits = 100;

  timespec left_{0, 100'000'000};
  int waits_ = 0;
};

}  // namespace

void DescriptorText::write(const char* text, std::size_t length, void* context) noexcept {
  DescriptorText& out = *static_cast<DescriptorText*>(context);
  const NoSignals no_signals;
  Patience patience;
  while (length > 0 && out.error_ == 0) {
    const long written =
        raw_syscall(SYS_write, out.descriptor_, to_long(text), static_cast<long>(length));
    if (written == -EINTR || (written == -EAGAIN && patience.wait_for(out.descriptor_))) continue;
    no_signals.take_back(written);
    if (written <= 0) {
      out.error_ = written == 0 ? EIO : -written;
      return;
    }
    text += written;
    length -= static_cast<std::size_t>(written);
    patience = {};
  }
}

}  // namespace allod
