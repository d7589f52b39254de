# Functions for the scripts of scenarios, which begin with `. /lib.sh`. Output goes to /out.
set -eu

# Ends the scenario with a reason, which the table shows.
fail() {
    echo "$*" >>/out/failed
    echo "failed: $*" >&2
    exit 1
}

# Adds a line to the table.
seen() {
    echo "$*" | tee -a /out/seen
}

# host_mib: how much of this guest's memory is resident on the host, in MiB. The wait is busy: while a guest is idle,
# its clock jumps from timer to timer.
host_mib() {
    while :; do :; done &
    spin=$!
    echo resident >&5
    read -r kib <&5
    kill $spin
    echo $((kib / 1024))
}

# For values from JSON use guest-tool, which fails if there is no value, or more than one.

# equal WHAT IS WANTED
equal() {
    [ "$2" = "$3" ] || fail "$1: $2, not $3"
}

# has WHAT FILE PATTERN: a line of the file must match
has() {
    grep -qE -e "$3" "$2" && return
    cat "$2"
    fail "$1: no line of $2 matches $3"
}

# within SECONDS COMMAND...: waits until the command succeeds. The emulator executes each attempt slowly, and skips the
# time between two.
within() {
    left=$(($1 * 2))
    shift
    until "$@"; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || fail "it does not come to be: $*"
        usleep 500000
    done
}

# The emulator keeps translations until the address space changes, and sets no accessed bit meanwhile. So this
# makes each CPU switch to another process now and then. Each script that looks at accessed bits of running
# processes needs it.
ticker() {
    mkfifo /tmp/never
    for cpu in $(seq 0 $(($(nproc) - 1))); do
        taskset -c "$cpu" sh -c 'exec 3<>/tmp/never; while :; do read -t 0.002 -u 3 _ || :; done' &
    done
}

# Reading page tables takes some fifty times longer here than on a real machine, so watching may cost more.
emulated="--budget 30%"

# The way to look that doctor recommends.
way() {
    isotherm system doctor | sed -n 's/^ok  *way to look: //p' | head -n 1
}

# workload FILE|NAME: starts the workload, and waits until its memory exists. $workload is its pid. After
# end_workload its truth is in /out/truth.json.
workload() {
    rm -f /tmp/ready
    isotherm lab workload "$1" --truth /out/truth.json --duration 600 >/tmp/ready &
    workload=$!
    within 60 test -s /tmp/ready
}

end_workload() {
    kill "$workload"
    wait "$workload" || fail "the workload failed"
}

kdamonds=/sys/kernel/mm/damon/admin/kdamonds

# refused COMMAND...: the command fails; /tmp/said has its message
refused() {
    if "$@" >/tmp/said 2>&1; then
        fail "it is not refused: $*"
    fi
}

# kdamond_is on|off
kdamond_is() {
    [ "$(cat "$kdamonds/0/state" 2>/dev/null)" = "$1" ]
}

# No program uses DAMON, and isotherm has left no trace of it.
damon_is_free() {
    equal "the number of kdamonds" "$(cat "$kdamonds/nr_kdamonds")" 0
    equal "what is in /run/isotherm" "$(ls /run/isotherm 2>/dev/null)" ""
    equal "the number of trace instances" "$(find /sys/kernel/tracing/instances -mindepth 1 -maxdepth 1 | wc -l)" 0
}

# on_node N COMMAND...: runs the command and its children with memory of this node only
on_node() {
    group=/sys/fs/cgroup/node$1
    echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
    mkdir -p "$group"
    echo "$1" >"$group/cpuset.mems"
    echo $$ >"$group/cgroup.procs"
    shift
    "$@"
    echo $$ >/sys/fs/cgroup/cgroup.procs
}

# mib_of SUMMARY MAPPING KEY: MiB, from a summary as JSON
mib_of() {
    bytes=$(guest-tool json "$1" "mappings.name=$2.$3")
    echo $((bytes >> 20))
}

# between LOW HIGH WHAT IS
between() {
    [ "$4" -ge "$1" ] 2>/dev/null && [ "$4" -le "$2" ] || fail "$3: $4, not $1 to $2"
}
