// Limits of the job that the process is in, as containers have one.
#pragma once

#include "allod/base/base.hpp"
#include "allod/os/windows/calls.hpp"

namespace allod::os {

// The limits of nested jobs are not seen, except those of the innermost.
class Job {
 public:
  // Bytes; 0: no limit.
  [[nodiscard]] static std::size_t memory_limit() noexcept {
    const LastError kept;
    constexpr int kExtendedLimits = 9;
    constexpr std::uint32_t kOfProcess = 0x100;
    constexpr std::uint32_t kOfJob = 0x200;
    ExtendedLimits limits{};
    if (allod_win_job(nullptr, kExtendedLimits, &limits, sizeof limits, nullptr) == 0) return 0;
    std::size_t least = 0;
    const auto note = [&](std::uint32_t flag, std::size_t bytes) noexcept {
      if ((limits.flags & flag) != 0 && (least == 0 || bytes < least)) least = bytes;
    };
    note(kOfProcess, limits.process_memory);
    note(kOfJob, limits.job_memory);
    return least;
  }
  // Processors whose time the process may use, of `all`, rounded up; 0: no limit.
  [[nodiscard]] static std::uint32_t processor_quota(std::uint32_t all) noexcept {
    const LastError kept;
    constexpr int kRate = 15;
    constexpr std::uint32_t kIsOn = 1;
    constexpr std::uint32_t kIsHard = 4;
    constexpr std::uint64_t kWhole = 10'000;
    struct {
      std::uint32_t flags;
      std::uint32_t rate;  // of all processors
    } control{};
    const bool is_known = allod_win_job(nullptr, kRate, &control, sizeof control, nullptr) != 0;
    if (!is_known || (control.flags & (kIsOn | kIsHard)) != (kIsOn | kIsHard)) return 0;
    return static_cast<std::uint32_t>((std::uint64_t{all} * control.rate + kWhole - 1) / kWhole);
  }

 private:
  // JOBOBJECT_EXTENDED_LIMIT_INFORMATION of <winnt.h>.
  struct ExtendedLimits {
    std::int64_t times[2];
    std::uint32_t flags;
    std::size_t working_set[2];
    std::uint32_t processes;
    std::size_t affinity;
    std::uint32_t classes[2];
    std::uint64_t counters[6];
    std::size_t process_memory;
    std::size_t job_memory;
    std::size_t peaks[2];
  };
  static_assert(sizeof(ExtendedLimits) == 144);
};

}  // namespace allod::os
