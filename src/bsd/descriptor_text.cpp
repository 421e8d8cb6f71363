// Text to descriptors of macOS and FreeBSD.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "allod/os/bsd/bsd.hpp"
#include "text/text.hpp"

namespace allod {

namespace {

// Suppresses SIGPIPE and SIGXFSZ for the calling thread's writes during its lifetime. It consumes a
// signal that a write raises, unless the same signal was pending before.
class NoSignals {
 public:
  NoSignals() noexcept {
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGPIPE);
    sigaddset(&both, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &both, &before_);
    sigpending(&waiting_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

  // To be called after a failed write.
  void take_back(int error) const noexcept {
    const int sent = error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
    if (sent == 0 || sigismember(&waiting_, sent) != 0) return;
    sigset_t now;
    sigpending(&now);
    if (sigismember(&now, sent) == 0) return;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, sent);
    int taken = 0;
    sigwait(&one, &taken);
  }

 private:
  sigset_t before_;
  sigset_t waiting_;
};

// Whether a full descriptor takes something within 0.1 s.
[[nodiscard]] bool takes_more(int descriptor) noexcept {
  constexpr int kPatienceMs = 100;
  pollfd one{descriptor, POLLOUT, 0};
  return poll(&one, 1, kPatienceMs) > 0;
}

}  // namespace

void DescriptorText::write(const char* text, std::size_t length, void* context) noexcept {
  DescriptorText& out = *static_cast<DescriptorText*>(context);
  const os::KeptErrno kept;
  const NoSignals no_signals;
  while (length > 0 && out.error_ == 0) {
    const ssize_t written = ::write(out.descriptor_, text, length);
    const int error = written < 0 ? errno : EIO;
    if (written < 0 && (error == EINTR || (error == EAGAIN && takes_more(out.descriptor_)))) {
      continue;
    }
    if (written <= 0) {
      no_signals.take_back(error);
      out.error_ = error;
      return;
    }
    text += written;
    length -= static_cast<std::size_t>(written);
  }
}

}  // namespace allod
