#!/bin/sh
# The second command: builds into build/ and runs the tests.
#     jobs/test.sh [CONFIGURE OPTION...]
# Installs what is missing, the readers and tools that tests use included. The last line counts the checks.
set -u
# shellcheck source=jobs/setup.sh
. "$(dirname "$0")/setup.sh"

packages build speed test
build "$@"

find build/tests -name '*.trs' -delete
make -C build -j"$(nproc)" check
status=$?
count() { find build/tests -name '*.trs' -exec grep -hE "^:test-result: ($1)" {} + | wc -l; }
passed=$(count 'PASS|XFAIL') failed=$(count 'FAIL|XPASS|ERROR') skipped=$(count SKIP)
# a test program that does not compile has no results
[ "$failed" -gt 0 ] || [ "$status" -eq 0 ] || failed=1
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
