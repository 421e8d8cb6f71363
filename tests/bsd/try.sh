#!/bin/sh
# Builds Allod on macOS or FreeBSD, runs its tests there, and writes what they say into a file:
#     sh tests/bsd/try.sh
# It needs CMake 3.25 and a compiler for C++20. Nobody has run it yet: please send us the file.
set -u

cd "$(dirname "$0")/../.." || exit 1
build=build/native
report="$PWD/allod-$(uname -s)-$(uname -m).txt"
most_seconds=120
passed=0
failed=0

case $(uname -s) in
  Darwin)
    library=$build/liballod.dylib
    variable=DYLD_INSERT_LIBRARIES
    ;;
  FreeBSD)
    library=$build/liballod.so
    variable=LD_PRELOAD
    ;;
  *)
    echo "This is neither macOS nor FreeBSD; here, ./allod test --only bsd runs the tests." >&2
    exit 1
    ;;
esac

say() {
  printf '%s\n' "$*" | tee -a "$report"
}

# limited COMMAND: ends it if it takes too long.
limited() {
  "$@" >>"$report" 2>&1 &
  tried=$!
  (
    sleep "$most_seconds"
    kill -9 "$tried"
  ) 2>/dev/null &
  guard=$!
  wait "$tried"
  status=$?
  kill "$guard" 2>/dev/null
  return "$status"
}

# try STATUS NAME COMMAND: the command must end with that status; -: with any but 0.
try() {
  expected=$1
  name=$2
  shift 2
  printf '\n$ %s\n' "$*" >>"$report"
  limited "$@"
  status=$?
  if [ "$status" = "$expected" ] || { [ "$expected" = - ] && [ "$status" != 0 ]; }; then
    passed=$((passed + 1))
    say "ok      $name"
  else
    failed=$((failed + 1))
    say "FAILED  $name (status $status)"
  fi
}

# cases SOURCE: the names of its cases.
cases() {
  sed -n 's/^ *{"\([a-z_]*\)", [a-z_]*},$/\1/p' "$1"
}

printf 'Allod, %s, %s\n' "$(uname -a)" "$(date)" >"$report"
cmake --version >>"$report" 2>&1
if ! cmake -S . -B "$build" -DALLOD_BUILD_TESTS=ON >>"$report" 2>&1 ||
  ! cmake --build "$build" --target bsd_tests >>"$report" 2>&1; then
  say "It does not build: please send us $report"
  exit 1
fi

for case in $(cases tests/bsd/portable/api.c); do
  expected=0
  case $case in double_free | invalid_free) expected=- ;; esac
  try "$expected" "api $case" "$build/bsd_api" "$case"
done
for case in $(cases tests/bsd/portable/operators.cpp); do
  try 0 "operators $case" "$build/bsd_operators" "$case"
done
for case in $(cases tests/bsd/unaware.c); do
  try 0 "unaware $case" env "$variable=$PWD/$library" "$build/bsd_unaware" "$case"
done
try 0 "statistics" env "$variable=$PWD/$library" ALLOD_SHOW_STATS=1 "$build/bsd_unaware" all_functions
if grep -q '^live  ' "$report"; then
  passed=$((passed + 1))
else
  failed=$((failed + 1))
  say "FAILED  the program did not run on Allod"
fi

say "$passed passed, $failed failed. Please send us $report"
[ "$failed" = 0 ]
