// Builds a full binary tree node by node and tears it down again, several times. Every node is
// read on the way down, since its children are found there.
#include "harness.hpp"

namespace {

struct Node {
  Node* left;
  Node* right;
  std::uint64_t label;
};

std::uint64_t g_depth = 20;
std::uint64_t g_rounds = 8;

constexpr bench::Parameter kParameters[] = {
    {"depth", &g_depth, 1, 30, "levels; the tree has 2^depth - 1 nodes"},
    {"rounds", &g_rounds, 1, 1'000'000, "times built and torn down"},
};
bench::Workload g_workload("tree", "build and tear down a binary tree", kParameters);

Node* build(std::uint64_t depth, std::uint64_t& label) {
  auto* node = reinterpret_cast<Node*>(bench::allocate(sizeof(Node)));
  node->label = label++;
  node->left = depth > 1 ? build(depth - 1, label) : nullptr;
  node->right = depth > 1 ? build(depth - 1, label) : nullptr;
  return node;
}

std::uint64_t tear_down(Node* node) {
  std::uint64_t sum = node->label;
  if (node->left != nullptr) {
    sum += 3 * tear_down(node->left) + 5 * tear_down(node->right);
  }
  std::free(node);
  return sum;
}

[[gnu::noinline]] std::uint64_t run(std::uint64_t rounds) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    std::uint64_t label = i;
    sum = bench::mix(sum, tear_down(build(g_depth, label)));
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  const std::uint64_t warm = run(1);
  g_workload.start();
  const std::uint64_t sum = run(g_rounds);
  g_workload.stop();
  g_workload.report(g_rounds * ((std::uint64_t{1} << g_depth) - 1), bench::mix(warm, sum));
}
