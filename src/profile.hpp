// The heap profile: which call stacks have allocated what. Samples are drawn in
// thread/counting.hpp; here is what is known of them.
#pragma once

#include "allod.h"
#include "process.hpp"
#include "text.hpp"

namespace allod::profile {

inline constexpr std::size_t kUsualInterval = std::size_t{512} << 10;

// As the functions of allod.h whose names end alike. Thread-safe.
void reset() noexcept;
void summarise(allod_profile_summary_t& summary) noexcept;
int visit_stacks(allod_profile_stack_visit_t visit, void* context) noexcept;
int visit_blocks(allod_profile_block_visit_t visit, void* context) noexcept;
int visit_classes(allod_profile_class_visit_t visit, void* context) noexcept;
void write(Text& out) noexcept;

// Around a fork.
void lock() noexcept;
void unlock() noexcept;
void reset_lock_after_fork() noexcept;

}  // namespace allod::profile
