// A pool of the program's own whose blocks the live page shows, and the page served by the program.
#include <allod-live.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

// Blocks of one size, cut from large ones.
class Pool {
 public:
  explicit Pool(std::size_t bytes) : bytes_(bytes) {}

  void* take() {
    if (free_.empty()) grow();
    void* const block = free_.back();
    free_.pop_back();
    allod_live_report_alloc(block, bytes_);
    return block;
  }
  void give(void* block) {
    allod_live_report_free(block);
    free_.push_back(block);
  }

 private:
  static constexpr std::size_t kBlocks = 64;

  void grow() {
    pieces_.push_back(std::make_unique<std::byte[]>(kBlocks * bytes_));
    for (std::size_t i = 0; i < kBlocks; ++i) free_.push_back(pieces_.back().get() + i * bytes_);
  }

  std::size_t bytes_;
  std::vector<std::unique_ptr<std::byte[]>> pieces_;
  std::vector<void*> free_;
};

// Serves its page while the command runs, which finds it by $PAGE and $TOKEN.
int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s COMMAND\n", argv[0]), 2;
  if (allod::live::start("127.0.0.1", 0) != 0) return std::fprintf(stderr, "no page\n"), 1;
  Pool pool(100);
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(pool.take());
  allod::live::mark("a thousand blocks");
  for (std::size_t i = 0; i < blocks.size(); i += 2) pool.give(blocks[i]);

  const std::string link = allod::live::link();  // http://127.0.0.1:PORT/?token=TOKEN
  const std::size_t query = link.find("/?token=");
  setenv("PAGE", link.substr(0, query).c_str(), 1);
  setenv("TOKEN", link.substr(query + 8).c_str(), 1);
  const int status = std::system(argv[1]);
  allod::live::stop();
  return status;
}
