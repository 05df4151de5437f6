"""Waiting in tests. A test waits for what it is about: a file, a line, an event. A deadline only ends a test that hangs, so
that no slow machine reaches it. What the product is told to allow (timeout_s and its like) is short, since tests wait for
it. DRIVETRAIN_TEST_TIME_SCALE multiplies all of these times; waiting.h is the same for C++."""

import os
import time


def scaled(seconds):
    return seconds * float(os.environ.get("DRIVETRAIN_TEST_TIME_SCALE", "1"))


DEADLINE_S = scaled(100)  # far more than anything takes that a test waits for
NO_TIMEOUT = 86400  # of a wait that something else ends; where nothing does, the test hangs until CTest ends it


def eventually(condition, within_s=DEADLINE_S):
    """True once the condition holds; false if it does not in time."""
    end = time.monotonic() + within_s  # Waits: all tests do it here
    while not (holds := condition()):
        if time.monotonic() > end:  # Waits: all tests do it here
            return False
        time.sleep(0.02)  # Waits: before the next look
    return holds


# Waits: all tests do it by this
def let_pass(seconds):
    """For what must not happen meanwhile, and for what has to be late. A slow machine makes it longer, and nothing else."""
    time.sleep(scaled(seconds))  # Waits: all tests do it here


STAY = "sleep 100000"  # Waits: a process that stays until it is ended
# For scripts of bash whose files lie in $W. hold: stays until it is ended; $STAY: the command that does. idle: stays, and
# minds signals. until_it COMMAND...: until that succeeds. all_up: until every rank has come to it.
SHELL = (
    f"STAY='{STAY}'; NAP='sleep 0.05'; "  # Waits: scripts do it by these
    'hold() { exec $STAY; }; idle() { while :; do $NAP; done; }; until_it() { until "$@"; do $NAP; done; }; '
    'await() { until_it test -e "$W/$1"; }; gone() { [ -s "$1" ] && ! kill -0 $(cat "$1"); } 2> /dev/null; '
    'let_pass() { sleep $1; }; '  # Waits: scripts do it by this
    'all_up() { touch "$W/up$RANK"; for rank in $(seq 0 $((WORLD_SIZE - 1))); do await up$rank; done; }; ')
