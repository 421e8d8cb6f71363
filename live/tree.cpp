#include "tree.hpp"

#include <stdio.h>

#include "names.hpp"
#include "symbols.hpp"

namespace allod::live {

bool write_place(Json& json, const Place& place) noexcept {
  const ShortName name{place.function};
  const bool passes_on = is_wrapper(name.text());
  json.field("n", place.function);
  if (name.text() != place.function) json.field("s", name.text());
  if (passes_on) json.field("w", std::uint64_t{1});
  if (!place.file.empty()) {
    char text[512];
    const int length = static_cast<int>(place.file.size());
    if (place.line != 0) {
      snprintf(text, sizeof text, "%.*s:%u", length, &place.file[0], place.line);
    } else {
      snprintf(text, sizeof text, "%.*s", length, &place.file[0]);
    }
    json.field("f", static_cast<const char*>(text));
  }
  return passes_on;
}

std::uint32_t Tree::child_of(std::uint32_t parent, const Node& like) noexcept {
  for (std::uint32_t at = nodes_[parent].first_child; at != kNone; at = nodes_[at].next) {
    if (nodes_[at].name == like.name) return at;
  }
  const auto fresh = static_cast<std::uint32_t>(nodes_.size());
  if (!nodes_.push(like)) return kNone;
  nodes_[fresh].next = nodes_[parent].first_child;
  nodes_[parent].first_child = fresh;
  return fresh;
}

bool Tree::add(const allod_profile_stack_t& stack, std::uint64_t bytes,
               std::uint64_t blocks) noexcept {
  if (nodes_.empty() && !nodes_.push({})) return false;
  nodes_[0].bytes += bytes;
  nodes_[0].blocks += blocks;
  std::uint32_t parent = 0;
  for (std::size_t i = stack.depth; i-- > 0;) {
    // Inlined functions come innermost first.
    constexpr std::size_t kMostInlined = 32;
    struct Names {
      std::size_t ids[kMostInlined];
      std::size_t count;
    } names{{}, 0};
    find_places(
        stack.frames[i],
        [](const Place& place, void* context) {
          auto& to = *static_cast<Names*>(context);
          if (to.count < kMostInlined) to.ids[to.count++] = place.id;
        },
        &names);
    for (std::size_t k = names.count; k-- > 0;) {
      const std::uint32_t child = child_of(
          parent, {names.ids[k], stack.frames[i], static_cast<unsigned>(k), kNone, kNone, 0, 0});
      if (child == kNone) return false;
      nodes_[child].bytes += bytes;
      nodes_[child].blocks += blocks;
      parent = child;
    }
  }
  return true;
}

void Tree::write(Json& json) const noexcept {
  json.object("root");
  if (nodes_.empty()) {
    json.field("n", "all").field("v", 0).field("b", 0);
  } else {
    write_node(json, 0, 0);
  }
  json.end();
}

void Tree::write_node(Json& json, std::uint32_t index, unsigned depth) const noexcept {
  const Node& node = nodes_[index];
  if (index == 0) {
    json.field("n", "all");
  } else {
    struct Writing {
      Json& json;
      unsigned skip;
    } writing{json, node.inlined};
    find_places(
        node.address,
        [](const Place& place, void* context) {
          auto& to = *static_cast<Writing*>(context);
          if (to.skip-- != 0) return;
          write_place(to.json, place);
        },
        &writing);
  }
  json.field("v", node.bytes).field("b", node.blocks);
  if (node.first_child == kNone || depth == kDeepest) return;
  json.array("c");
  for (std::uint32_t at = node.first_child; at != kNone; at = nodes_[at].next) {
    if (nodes_[at].bytes * kSmallest < nodes_[0].bytes) continue;
    json.object();
    write_node(json, at, depth + 1);
    json.end();
  }
  json.end();
}

}  // namespace allod::live
