// What Linux tells: what a container may use, read from files like those of the system; and how
// much of some memory is there. What it takes back, in pieces.
#include "allod/os/linux/linux.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace allod::test {
namespace {

using os::ControlGroups;

class ControlGroupsTest : public testing::Test {
 protected:
  ControlGroupsTest() {
    std::string name = std::filesystem::temp_directory_path() / "allod-groups-XXXXXX";
    root = mkdtemp(name.data());
  }
  ~ControlGroupsTest() override { std::filesystem::remove_all(root); }

  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream{path} << text;
  }
  ControlGroups groups() {
    list = root + "/list";
    return {list.c_str(), root};
  }

  std::string root;
  std::string list;
};

TEST_F(ControlGroupsTest, version_2_gives_the_least_of_all_groups_around) {
  write("list", "0::/a/b\n");
  EXPECT_EQ(groups().memory_limit(), 0U) << "nothing can be read";
  EXPECT_EQ(groups().processor_quota(), 0U);
  write("a/b/memory.max", "max\n");
  write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(groups().memory_limit(), 0U);
  EXPECT_EQ(groups().processor_quota(), 0U);
  write("a/memory.max", "536870912\n");
  write("a/cpu.max", "250000 100000\n");
  EXPECT_EQ(groups().memory_limit(), std::size_t{512} << 20);
  EXPECT_EQ(groups().processor_quota(), 3U);
  write("a/b/memory.high", "1048576\n");
  write("a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(groups().memory_limit(), std::size_t{1} << 20);
  EXPECT_EQ(groups().processor_quota(), 1U);
}

TEST_F(ControlGroupsTest, version_1_has_a_tree_for_each_controller) {
  write("list", "9:name=systemd:/\n4:cpuset,memory:/m/n\n3:cpu,cpuacct:/c\n0::/\n");
  write("memory/m/memory.limit_in_bytes", "9223372036854771712\n");
  write("cpu/c/cpu.cfs_quota_us", "-1\n");
  write("cpu/c/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(groups().memory_limit(), 0U);
  EXPECT_EQ(groups().processor_quota(), 0U);
  write("memory/m/n/memory.limit_in_bytes", "67108864\n");
  write("cpu/c/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(groups().memory_limit(), std::size_t{64} << 20);
  EXPECT_EQ(groups().processor_quota(), 4U);
}

// As in a container that sees its group as the root, under the name that it has outside.
TEST_F(ControlGroupsTest, the_root_counts_where_the_name_leads_nowhere) {
  write("list", "4:memory:/docker/0123456789abcdef\n0::/\n");
  write("memory/memory.limit_in_bytes", "33554432\n");
  write("cpu.max", "100000 100000\n");
  EXPECT_EQ(groups().memory_limit(), std::size_t{32} << 20);
  EXPECT_EQ(groups().processor_quota(), 1U);
}

TEST_F(ControlGroupsTest, what_is_not_understood_is_no_limit) {
  EXPECT_EQ(groups().memory_limit(), 0U) << "no list";
  for (const char* text : {"", "\n", "0", "::", "0::", "a:b:c:d\n", "0::/a\n4:memory\n"}) {
    write("list", text);
    for (const char* value : {"", "x", " 5", "-7\n", "99999999999999999999\n"}) {
      write("a/memory.max", value);
      write("a/cpu.max", value);
      write("memory/memory.limit_in_bytes", value);
      EXPECT_EQ(groups().memory_limit(), 0U) << text << value;
      EXPECT_EQ(groups().processor_quota(), 0U) << text << value;
    }
  }
  write("list", "0::/" + std::string(3000, 'a') + "\n");
  EXPECT_EQ(groups().memory_limit(), 0U) << "a path that is too long";
  EXPECT_EQ((ControlGroups{"/nowhere", "/nowhere"}.memory_limit()), 0U);
}

TEST_F(ControlGroupsTest, what_the_system_says_of_this_process_is_no_nonsense) {
  EXPECT_TRUE(ControlGroups{}.memory_limit() == 0 || ControlGroups{}.memory_limit() >= 1U << 20);
  EXPECT_LT(ControlGroups{}.processor_quota(), 1U << 20);
}

class MemoryNodes : public ControlGroupsTest {};

TEST_F(MemoryNodes, are_counted_to_the_highest_of_a_list) {
  const auto count_in = [&](const char* text) {
    write("nodes", text);
    return os::LinuxNodes::count_in((root + "/nodes").c_str());
  };
  EXPECT_EQ(count_in("0\n"), 1U);
  EXPECT_EQ(count_in("0-1\n"), 2U);
  EXPECT_EQ(count_in("0,2-12\n"), 13U);
  EXPECT_EQ(count_in("0,2\n"), 3U);
  EXPECT_EQ(count_in(""), 1U);
  EXPECT_EQ(count_in("99999999999999999999\n"), 1U);
  EXPECT_EQ(os::LinuxNodes::count_in("/nowhere"), 1U);
}

TEST_F(MemoryNodes, have_ids_below_their_number) {
  EXPECT_GE(os::LinuxNodes::count(), 1U);
  if (os::LinuxNodes::count() > 1) {
    EXPECT_LT(os::LinuxNodes::here(), os::LinuxNodes::count());
  }
}

class PresentBytes : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 31 * (std::size_t{1} << 20) + kSliceBytes;

  PresentBytes() {
    system.start();
    memory = static_cast<char*>(system.reserve(kBytes, kSliceBytes));
    EXPECT_TRUE(system.commit(memory, kBytes));
  }
  ~PresentBytes() override { system.unmap(memory, kBytes); }

  void touch(std::size_t from, std::size_t to, std::size_t step = 1) const {
    const std::size_t page = system.page_size();
    for (std::size_t at = from; at < to; at += step * page) memory[at] = 1;
  }
  [[nodiscard]] double part_told(std::size_t bytes = kBytes) {
    return static_cast<double>(system.present_bytes(memory, bytes)) / static_cast<double>(bytes);
  }

  os::Linux system;
  char* memory = nullptr;
};

TEST_F(PresentBytes, are_none_and_all) {
  EXPECT_EQ(system.present_bytes(memory, kBytes), 0U);
  touch(0, kBytes);
  EXPECT_EQ(system.present_bytes(memory, kBytes), kBytes);
  EXPECT_TRUE(system.purge(memory, kBytes));
  EXPECT_EQ(system.present_bytes(memory, kBytes), 0U);
}

TEST_F(PresentBytes, are_exact_in_little_memory) {
  const std::size_t slice = kSliceBytes;
  touch(slice, 3 * slice);
  EXPECT_EQ(system.present_bytes(memory, 4 * slice), 2 * slice);
  EXPECT_EQ(system.present_bytes(memory, slice), 0U);
}

TEST_F(PresentBytes, are_about_right_for_a_start_an_end_and_for_what_is_scattered) {
  touch(0, kBytes / 8);
  EXPECT_NEAR(part_told(), 0.125, 0.07) << "of one table, an eighth tells for all";
  touch(kBytes - kBytes / 8, kBytes);
  EXPECT_NEAR(part_told(), 0.25, 0.14);
  EXPECT_TRUE(system.purge(memory, kBytes));
  touch(0, kBytes, 3);
  EXPECT_NEAR(part_told(), 1.0 / 3, 0.02);
}

TEST_F(PresentBytes, are_not_overlooked_where_the_same_part_of_each_table_is_there) {
  constexpr std::size_t kTable = std::size_t{2} << 20;
  for (std::size_t part = 0; part < 8; ++part) {
    EXPECT_TRUE(system.purge(memory, kBytes));
    for (std::size_t at = part * kTable / 8; at < kBytes; at += kTable) {
      touch(at, at + kTable / 8 < kBytes ? at + kTable / 8 : kBytes);
    }
    EXPECT_NEAR(part_told(), 0.125, 0.07) << "part " << part;
  }
}

TEST(Auxiliary, holds_what_the_kernel_told_the_process) {
  constexpr unsigned long kTypes[] = {AT_PAGESZ, AT_PHDR,   AT_RANDOM,       AT_EXECFN, AT_UID,
                                      AT_EUID,   AT_HWCAP2, AT_SYSINFO_EHDR, AT_SECURE, AT_BASE};
  for (const unsigned long type : kTypes) {
    EXPECT_EQ(Auxiliary::value(type), getauxval(type)) << type;
  }
  EXPECT_EQ(Auxiliary::value(AT_NULL), 0U);
}

TEST(Vdso, has_the_time_of_the_system) {
  if (getauxval(AT_SYSINFO_EHDR) == 0) GTEST_SKIP() << "the kernel maps no such functions here";
#if defined(__x86_64__)
  const os::SharedObject object{Auxiliary::value(AT_SYSINFO_EHDR)};
  EXPECT_NE(object.find("__vdso_clock_gettime"), 0U);
  EXPECT_EQ(object.find("__vdso_clock_gettim"), 0U);
#endif
  const auto nanoseconds = [](const timespec& time) {
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
  };
  for (int i = 0; i < 1000; ++i) {
    timespec before{};
    timespec now{};
    timespec after{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &before);
    os::Vdso::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    clock_gettime(CLOCK_MONOTONIC_COARSE, &after);
    EXPECT_LE(nanoseconds(before), nanoseconds(now));
    EXPECT_LE(nanoseconds(now), nanoseconds(after));
  }
}

TEST(Linux, knows_the_only_processor_that_a_thread_may_run_on) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  for (std::uint32_t i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &before)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(i, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(os::Linux::processor(), i);
    EXPECT_EQ(os::Vdso::processor(), i);
  }
  sched_setaffinity(0, sizeof before, &before);
}

// --- threads of our own -------------------------------------------------------------------------

// Without AddressSanitizer, whose runtime looks for what it keeps of each thread that it knows.
[[gnu::no_sanitize_address]] void count_up(void* counter) {
  __atomic_fetch_add(static_cast<int*>(counter), 1, __ATOMIC_SEQ_CST);
}

// Its thread is still on the stack then. Where others keep it from the processor for long, a start
// may be refused.
TEST(Helper, starts_again_when_its_function_has_returned) {
  using Own = os::LinuxHelper<struct Testing>;
  constexpr int kStarts = 2000;
  int done = 0;
  int refused = 0;
  for (int i = 0; i < kStarts; ++i) {
    while (!Own::start(count_up, &done)) {
      if (kThreadSanitizer) GTEST_SKIP() << "no thread of our own under ThreadSanitizer";
      ++refused;
    }
    while (__atomic_load_n(&done, __ATOMIC_SEQ_CST) == i) sched_yield();
  }
  EXPECT_LT(refused, kStarts / 100);
  EXPECT_TRUE(Own::wait_until_gone(1000));
}

// --- pages that move ----------------------------------------------------------------------------

class MovedPages : public testing::Test {
 protected:
  void SetUp() override {
    system.start();
    bytes = kPages * system.page_size();
    memory = static_cast<char*>(system.map(4 * bytes));
    ASSERT_NE(memory, nullptr);
    target = memory + 2 * bytes;
    std::memset(memory, 7, bytes);
    std::memset(target, 1, bytes);
    if (system.move_pages(memory, bytes, target) != os::Moved::yes) {
      system.unmap(memory, 4 * bytes);
      GTEST_SKIP() << "this kernel moves no pages and leaves the mapping";
    }
  }
  void TearDown() override {
    if (!IsSkipped()) system.unmap(memory, 4 * bytes);
  }
  bool is_all(const char* at, char value) const {
    return std::all_of(at, at + bytes, [&](char byte) { return byte == value; });
  }
  std::size_t mappings() const {
    std::ifstream maps{"/proc/self/maps"};
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
      const Address from = std::stoull(line, nullptr, 16);
      if (from >= address_of(memory) && from < address_of(memory) + 4 * bytes) ++count;
    }
    return count;
  }
  static constexpr std::size_t kPages = 16;
  os::Linux system;
  std::size_t bytes = 0;
  char* memory = nullptr;
  char* target = nullptr;
};

TEST_F(MovedPages, take_their_content_along) {
  EXPECT_TRUE(is_all(target, 7));
  EXPECT_TRUE(is_all(memory, 0));
  std::memset(memory, 2, bytes);
  EXPECT_TRUE(is_all(target, 7));
}

TEST_F(MovedPages, are_a_mapping_of_their_own) {
  EXPECT_TRUE(system.is_one_mapping(target, bytes));
  EXPECT_FALSE(system.is_one_mapping(target - bytes, 2 * bytes));
  EXPECT_FALSE(system.is_one_mapping(target, 2 * bytes));
}

TEST_F(MovedPages, move_on_from_within_their_mapping) {
  const std::size_t half = bytes / 2;
  EXPECT_EQ(system.move_pages(target + half, half, memory), os::Moved::yes);
  EXPECT_EQ(memory[0], 7);
  EXPECT_EQ(target[0], 7);
  EXPECT_EQ(target[half], 0);
}

TEST_F(MovedPages, stay_if_they_are_locked) {
  if (system.lock(target, bytes) != 0) GTEST_SKIP() << "no memory may be locked";
  EXPECT_EQ(system.move_pages(target, bytes, memory), os::Moved::no);
  EXPECT_TRUE(is_all(target, 7));
}

TEST_F(MovedPages, stay_if_one_of_them_is_locked) {
  const std::size_t page = system.page_size();
  if (system.lock(target + bytes - page, page) != 0) GTEST_SKIP() << "no memory may be locked";
  EXPECT_EQ(system.move_pages(target, bytes, memory), os::Moved::no);
  EXPECT_TRUE(is_all(target, 7));
}

// A child without the page gets a signal.
TEST_F(MovedPages, are_inherited_and_writable_whatever_the_program_said) {
  ASSERT_EQ(madvise(target, bytes, MADV_DONTFORK), 0);
  ASSERT_EQ(mprotect(target, bytes, PROT_READ), 0);
  ASSERT_EQ(system.move_pages(target, bytes, memory), os::Moved::yes);
  const auto write_in_child = [&] {
    const pid_t child = fork();
    if (child == 0) {
      *static_cast<volatile char*>(memory) = 9;
      _exit(0);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0;
  };
  EXPECT_FALSE(write_in_child()) << "the advice moves along";
  system.forget_advice(memory, bytes);
  EXPECT_TRUE(write_in_child());
  EXPECT_TRUE(is_all(memory, 7));
  ASSERT_EQ(madvise(memory, bytes, MADV_WIPEONFORK), 0);
  system.forget_advice(memory, bytes);
  EXPECT_TRUE(write_in_child());
}

TEST_F(MovedPages, are_one_mapping_with_their_neighbours_once_renewed) {
  const std::size_t before = mappings();
  EXPECT_TRUE(system.purge(target, bytes));
  EXPECT_EQ(mappings(), before);
  EXPECT_TRUE(system.renew(target, bytes));
  EXPECT_LT(mappings(), before);
  EXPECT_TRUE(is_all(target, 0));
  target[0] = 1;
}

// The last page of a mapping has nothing behind it. To ask maps nothing there.
TEST_F(MovedPages, leave_what_is_behind_them_alone) {
  auto* const alone = static_cast<char*>(system.map(3 * bytes));
  system.unmap(alone, bytes);
  system.unmap(alone + 2 * bytes, bytes);
  std::memset(alone + bytes, 5, bytes);
  EXPECT_TRUE(system.is_one_mapping(alone + bytes, bytes));
  EXPECT_EQ(system.move_pages(alone + bytes, bytes, target), os::Moved::yes);
  EXPECT_TRUE(is_all(target, 5));
  unsigned char page = 0;
  EXPECT_FALSE(os::Linux::look(alone + 2 * bytes, system.page_size(), &page)) << "nothing is there";
  system.unmap(alone + bytes, bytes);
}

// --- pieces -------------------------------------------------------------------------------------

// Every second page, by one call or by many.
TEST(PurgeEach, takes_all_pieces_and_nothing_between_them) {
  constexpr std::size_t kPages = 64;
  os::Linux system;
  system.start();
  const std::size_t page = system.page_size();
  auto* const memory = static_cast<unsigned char*>(system.map(kPages * page));
  ASSERT_NE(memory, nullptr);
  for (const std::size_t count : {std::size_t{1}, std::size_t{2}, kPages / 2}) {
    std::memset(memory, 1, kPages * page);
    os::Piece pieces[kPages / 2];
    for (std::size_t i = 0; i < count; ++i) pieces[i] = {memory + 2 * i * page, page};
    EXPECT_TRUE(system.purge_each(pieces, count));
    for (std::size_t i = 0; i < kPages; ++i) {
      const bool is_purged = i % 2 == 0 && i / 2 < count;
      EXPECT_EQ(memory[i * page], is_purged ? 0 : 1) << i << " of " << count;
    }
  }
  system.unmap(memory, kPages * page);
}

TEST(PurgeEach, goes_on_after_a_piece_that_the_system_refuses) {
  os::Linux system;
  system.start();
  const std::size_t page = system.page_size();
  auto* const memory = static_cast<unsigned char*>(system.map(6 * page));
  ASSERT_NE(memory, nullptr);
  std::memset(memory, 1, 6 * page);
  if (system.lock(memory + 2 * page, page) != 0) GTEST_SKIP() << "no memory may be locked";
  const os::Piece pieces[] = {{memory, page}, {memory + 2 * page, page}, {memory + 4 * page, page}};
  EXPECT_TRUE(system.purge_each(pieces, 3));
  EXPECT_EQ(memory[0], 0);
  EXPECT_EQ(memory[2 * page], 1) << "locked memory stays";
  EXPECT_EQ(memory[4 * page], 0);
  EXPECT_FALSE(system.purge_each(pieces + 1, 1)) << "nothing went";
  system.unmap(memory, 6 * page);
}

}  // namespace
}  // namespace allod::test
