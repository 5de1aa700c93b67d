#!/usr/bin/env bash
# Runs every fuzz target of the repository for FUZZ_S seconds each (5), one after another, and fails when one does or when
# none is found. What a failing target found is written to the testdata/fuzz folder of its package by the go command.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_S:-5} # make passes it on empty
found=0 failed=()
while IFS=: read -r file target; do
  found=$((found + 1))
  printf '%s %s\n' "$(dirname "$file")" "$target"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "${seconds}s" "./$(dirname "$file")" >"${TMPDIR:-/tmp}/errand-fuzz.$$" 2>&1 ||
    { cat "${TMPDIR:-/tmp}/errand-fuzz.$$"; failed+=("$target"); }
done < <(git ls-files -co --exclude-standard '*_test.go' | xargs grep -Ho '^func Fuzz[A-Za-z0-9]*' | sed 's/func //')
rm -f "${TMPDIR:-/tmp}/errand-fuzz.$$"
[ "$found" -gt 0 ] || { echo 'no fuzz target was found' >&2; exit 1; }
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
printf '%d targets, %s s each\n' "$found" "$seconds"
