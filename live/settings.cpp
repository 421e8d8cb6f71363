#include "settings.hpp"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "address.hpp"
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

// Takes "http://127.0.0.1:4318/path" apart.
void take_push() noexcept {
  constexpr std::string_view kScheme = "http://";
  constexpr std::string_view kNamed = "localhost:";
  constexpr const char* kUsualPath = "/v1development/profiles";
  constexpr unsigned long kUsualSeconds = 60;
  const char* const value = getenv("ALLOD_LIVE_PUSH");
  if (value == nullptr || *value == '\0' || strcmp(value, "0") == 0) return;
  std::string_view text{value};
  if (text.starts_with(kScheme)) text.remove_prefix(kScheme.size());
  const std::size_t slash = std::min(text.find('/'), text.size());
  const std::string_view path = text.substr(slash);
  const std::string_view host = text.substr(0, slash);
  const char* const prefix = host.starts_with(kNamed) ? "127.0.0.1:" : "";
  const std::string_view rest = *prefix == '\0' ? host : host.substr(kNamed.size());
  snprintf(current.push, sizeof current.push, "%s%.*s", prefix, static_cast<int>(rest.size()),
           rest.data());
  snprintf(current.push_path, sizeof current.push_path, "%.*s", static_cast<int>(path.size()),
           path.data());
  if (path.size() < 2) strcpy(current.push_path, kUsualPath);
  const char* const seconds = getenv("ALLOD_LIVE_PUSH_SECONDS");
  const unsigned long every = seconds == nullptr ? 0 : strtoul(seconds, nullptr, 10);
  current.push_ms = 1000 * std::uint64_t{every == 0 ? kUsualSeconds : std::min(every, 86400UL)};
  const char* const service = getenv("OTEL_SERVICE_NAME");
  snprintf(current.service, sizeof current.service, "%s",
           service == nullptr || *service == '\0' ? program_invocation_short_name : service);
  sockaddr_storage address{};
  const bool is_whole = text.size() + kNamed.size() < sizeof current.push;
  const bool has_controls = path.find_first_of(" \r\n\t") != path.npos;
  if (is_whole && !has_controls && parse_address(current.push, address) != 0) return;
  current.push[0] = '\0';
  Message{} << "warning: ALLOD_LIVE_PUSH is not of the form http://127.0.0.1:4318/path, with an "
               "address in numbers; no profiles are pushed";
}

}  // namespace

Settings& settings() noexcept { return current; }

bool read_settings() noexcept {
  current.wanted = is_set("ALLOD_LIVE");
  take_push();
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
