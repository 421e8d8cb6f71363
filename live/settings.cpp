#include "settings.hpp"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

// Process id, address and token of the page.
constexpr const char* kPage = "LIBALLOD_LIVE_PAGE";

void take_page_over() noexcept {
  const char* const page = getenv(kPage);
  long long process = 0;
  char address[sizeof current.address];
  char token[sizeof current.token];
  if (page == nullptr || sscanf(page, "%lld %255s %128s", &process, address, token) != 3) return;
  if (process != getpid()) return;
  strcpy(current.address, address);
  strcpy(current.token, token);
  current.was_told = true;
}

}  // namespace

Settings& settings() noexcept { return current; }

bool read_settings() noexcept {
  current.wanted = is_set("ALLOD_LIVE");
  if (!current.wanted) return true;
  if (const char* const only = getenv("ALLOD_LIVE_ONLY")) current.only = atoll(only);
  current.children = is_set("ALLOD_LIVE_CHILDREN");
  const bool good =
      copy("ALLOD_LIVE", current.address) && copy("ALLOD_LIVE_TOKEN", current.token) &&
      copy("ALLOD_LIVE_HOSTS", current.hosts) && copy("ALLOD_LIVE_LINK", current.link_file) &&
      copy("ALLOD_LIVE_WRAPPERS", current.wrappers) && token_is_good();
  if (good) take_page_over();
  return good;
}

void choose_page(const char* link) noexcept {
  const char* const address = strstr(link, "://");
  const char* const token = strstr(link, "/?token=");
  if (address == nullptr || token == nullptr) return;
  snprintf(current.address, sizeof current.address, "%.*s", static_cast<int>(token - address - 3),
           address + 3);
  snprintf(current.token, sizeof current.token, "%s", token + strlen("/?token="));
}

void keep_page(const char* link) noexcept {
  choose_page(link);
  char page[sizeof current.address + sizeof current.token + 32];
  snprintf(page, sizeof page, "%d %s %s", getpid(), current.address, current.token);
  setenv(kPage, page, 1);
}

}  // namespace allod::live
