// What a container may use, read from files like those of the system.
#include "allod/os/linux_control_groups.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace allod::test
