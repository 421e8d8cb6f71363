// Bodies under gravity, by the method of J. Barnes and P. Hut ("A hierarchical O(N log N)
// force-calculation algorithm", Nature, 1986): in every step an octree is built of new blocks,
// walked once for each body, and freed. A measure of allocators since the Olden suite (A. Rogers,
// M. Carlisle, 1995) and E. Berger's Hoard (2000). The walks show how closely an allocator packs
// what is read together.
#include <algorithm>
#include <bit>
#include <cmath>

#include "harness.hpp"

namespace {

constexpr double kTimeStep = 0.01;
constexpr double kSoftening = 1e-4;  // added to squared distances
constexpr unsigned kDeepest = 40;    // bodies closer than a cell of this level share a chain

std::uint64_t g_bodies = 20'000;
std::uint64_t g_steps = 24;
std::uint64_t g_theta = 100;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"bodies", &g_bodies, 2, 10'000'000, "bodies"},
    {"steps", &g_steps, 1, 1'000'000, "steps in time"},
    {"theta", &g_theta, 10, 1'000,
     "percent of its distance that a cell may measure to count whole"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the positions"},
};
bench::Workload g_workload("nbody", "a Barnes-Hut tree, rebuilt in every step", kParameters);

struct Vector {
  double x;
  double y;
  double z;

  Vector& operator+=(const Vector& other) {
    x += other.x;
    y += other.y;
    z += other.z;
    return *this;
  }
};
Vector operator+(Vector a, const Vector& b) { return a += b; }
Vector operator*(const Vector& a, double by) { return {a.x * by, a.y * by, a.z * by}; }
Vector operator-(const Vector& a, const Vector& b) { return a + b * -1.0; }
double square(const Vector& a) { return a.x * a.x + a.y * a.y + a.z * a.z; }

struct Body {
  Vector position;
  Vector velocity;
  Vector force;
};

// A cell, or a body in the tree, all of which have the same mass.
struct Node {
  Vector center;  // of mass
  double mass;
  bool is_cell;
};
struct Leaf : Node {
  Leaf* next;  // in the same place
};
struct Cell : Node {
  Node* child[8];
};

Leaf* make_leaf(const Vector& position, double mass) {
  auto* leaf = reinterpret_cast<Leaf*>(bench::allocate(sizeof(Leaf)));
  *leaf = {{position, mass, false}, nullptr};
  return leaf;
}

Cell* make_cell() {
  auto* cell = reinterpret_cast<Cell*>(bench::allocate(sizeof(Cell)));
  *cell = {{{}, 0.0, true}, {}};
  return cell;
}

// The middle and half the side of a cube.
struct Cube {
  Vector middle;
  double half;

  std::size_t octant(const Vector& at) const {
    return (at.x < middle.x ? 0U : 1U) + (at.y < middle.y ? 0U : 2U) + (at.z < middle.z ? 0U : 4U);
  }
  Cube part(std::size_t octant) const {
    const double quarter = half / 2;
    const Vector offset{(octant & 1U) != 0 ? quarter : -quarter,
                        (octant & 2U) != 0 ? quarter : -quarter,
                        (octant & 4U) != 0 ? quarter : -quarter};
    return {middle + offset, quarter};
  }
};

void insert(Cell* cell, Cube cube, Leaf* leaf) {
  for (unsigned depth = 0;; ++depth) {
    const std::size_t octant = cube.octant(leaf->center);
    Node*& place = cell->child[octant];
    if (place == nullptr) {
      place = leaf;
      return;
    }
    cube = cube.part(octant);
    if (!place->is_cell) {
      auto* other = static_cast<Leaf*>(place);
      if (depth == kDeepest) {
        leaf->next = other;
        place = leaf;
        return;
      }
      Cell* between = make_cell();
      between->child[cube.octant(other->center)] = other;
      place = between;
    }
    cell = static_cast<Cell*>(place);
  }
}

void weigh(Cell* cell) {
  for (Node* child : cell->child) {
    if (child != nullptr && child->is_cell) {
      weigh(static_cast<Cell*>(child));
    }
    // A chain of leaves counts each; a cell has no chain.
    for (Node* node = child; node != nullptr;
         node = node->is_cell ? nullptr : static_cast<Leaf*>(node)->next) {
      cell->mass += node->mass;
      cell->center += node->center * node->mass;
    }
  }
  cell->center = cell->center * (1.0 / cell->mass);
}

Cell* build(const Body* bodies, Cube& cube) {
  double reach = 0.0;
  for (std::uint64_t i = 0; i < g_bodies; ++i) {
    const Vector& at = bodies[i].position;
    reach = std::max({reach, std::fabs(at.x), std::fabs(at.y), std::fabs(at.z)});
  }
  cube = {{}, reach};
  Cell* root = make_cell();
  for (std::uint64_t i = 0; i < g_bodies; ++i) {
    insert(root, cube, make_leaf(bodies[i].position, 1.0 / static_cast<double>(g_bodies)));
  }
  weigh(root);
  return root;
}

void free_tree(Node* node) {
  if (node->is_cell) {
    for (Node* child : static_cast<Cell*>(node)->child) {
      if (child != nullptr) {
        free_tree(child);
      }
    }
  } else if (Leaf* next = static_cast<Leaf*>(node)->next; next != nullptr) {
    free_tree(next);
  }
  std::free(node);
}

void pull(Body& body, const Node* node) {
  const Vector way = node->center - body.position;
  const double squared = square(way) + kSoftening;
  body.force += way * (node->mass / (squared * std::sqrt(squared)));
}

void attract(Body& body, const Node* node, double squared_side, double squared_theta) {
  if (!node->is_cell) {
    for (const auto* leaf = static_cast<const Leaf*>(node); leaf != nullptr; leaf = leaf->next) {
      pull(body, leaf);
    }
  } else if (squared_side < squared_theta * square(node->center - body.position)) {
    pull(body, node);
  } else {
    for (const Node* child : static_cast<const Cell*>(node)->child) {
      if (child != nullptr) {
        attract(body, child, squared_side / 4, squared_theta);
      }
    }
  }
}

void step(Body* bodies) {
  Cube cube;
  Cell* root = build(bodies, cube);
  const double theta = static_cast<double>(g_theta) / 100;
  for (std::uint64_t i = 0; i < g_bodies; ++i) {
    bodies[i].force = {};
    attract(bodies[i], root, 4 * cube.half * cube.half, theta * theta);
  }
  free_tree(root);
  for (std::uint64_t i = 0; i < g_bodies; ++i) {
    bodies[i].velocity += bodies[i].force * kTimeStep;
    bodies[i].position += bodies[i].velocity * kTimeStep;
  }
}

// Evenly in a ball of radius 1, turning slowly.
void place(Body* bodies) {
  bench::Random random(g_seed);
  const auto coordinate = [&] { return static_cast<double>(random.next() >> 11U) * 0x1p-52 - 1.0; };
  for (std::uint64_t i = 0; i < g_bodies; ++i) {
    Vector& at = bodies[i].position;
    do {
      at = {coordinate(), coordinate(), coordinate()};
    } while (square(at) > 1.0);
    bodies[i].velocity = {at.y * -0.5, at.x * 0.5, 0.0};
  }
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  auto* bodies = bench::map_array<Body>(g_bodies);
  place(bodies);
  for (std::uint64_t i = 0; i < g_steps / 10 + 1; ++i) {
    step(bodies);
  }
  g_workload.start();
  for (std::uint64_t i = 0; i < g_steps; ++i) {
    step(bodies);
  }
  g_workload.stop();
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < g_bodies; ++i) {
    const Vector& at = bodies[i].position;
    for (const double value : {at.x, at.y, at.z}) {
      sum = bench::mix(sum, std::bit_cast<std::uint64_t>(value));
    }
  }
  g_workload.report(g_steps * g_bodies, sum);
}
