#include "settings.hpp"

#include <stdlib.h>
#include <string.h>

#include "text/text.hpp"

namespace allod::live {

namespace {

constexpr std::size_t kShortestToken = 16;

constinit Settings current;

template <std::size_t N>
bool copy(const char* name, char (&to)[N]) noexcept {
  const char* const value = getenv(name);
  if (value == nullptr) return true;
  const std::size_t length = strlen(value);
  if (length < N) {
    memcpy(to, value, length + 1);
    return true;
  }
  Message{} << "warning: " << name << " is too long; there is no live page";
  return false;
}

bool is_set(const char* name) noexcept {
  const char* const value = getenv(name);
  return value != nullptr && *value != '\0' && strcmp(value, "0") != 0;
}

bool token_is_good() noexcept {
  const std::size_t length = strlen(current.token);
  if (length == 0) return true;
  const char* const allowed = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
  if (length >= kShortestToken && strspn(current.token, allowed) == length) return true;
  Message{} << "warning: ALLOD_LIVE_TOKEN needs " << std::uint64_t{kShortestToken}
            << " or more letters, digits, - and _; there is no live page";
  return false;
}

}  // namespace

Settings& settings() noexcept { return current; }

bool read_settings() noexcept {
  current.wanted = is_set("ALLOD_LIVE");
  if (!current.wanted) return true;
  if (const char* const only = getenv("ALLOD_LIVE_ONLY")) current.only = atoll(only);
  current.children = is_set("ALLOD_LIVE_CHILDREN");
  return copy("ALLOD_LIVE", current.address) && copy("ALLOD_LIVE_TOKEN", current.token) &&
         copy("ALLOD_LIVE_HOSTS", current.hosts) && copy("ALLOD_LIVE_LINK", current.link_file) &&
         copy("ALLOD_LIVE_WRAPPERS", current.wrappers) && token_is_good();
}

}  // namespace allod::live
