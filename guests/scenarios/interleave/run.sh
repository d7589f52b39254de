# A command whose memory is interleaved: exact, by the kernel or by moving.

for pair in "5 1" "1 5"; do
    set -- $pair
    isotherm interleave run --nodes 0,1 --weights "$1:$2" -- $(touches 256) 2>/tmp/run &
    run=$!
    started $run 256
    if [ "$WAY" = policy ]; then
        has "that weights are the machine's" /tmp/run "of the whole machine: 0=$1,1=$2"
        equal "weights while it runs" "$(weights | cut -d ' ' -f 1-2)" "$1 $2"
        settled || fail "$(cat /tmp/verified)"
        has "the policy" /tmp/verified "weighted interleave:0-1; by 0=$1,1=$2"
        says "wait until it has ended, or use the same" \
            isotherm interleave run --nodes 0,1 --weights 7:3 -- true
        says "wait until it has ended, or use the same" isotherm interleave set 0=3
        isotherm interleave run --nodes 0,1 --weights "$1:$2" -- true
        equal "weights after another one with the same" "$(weights | cut -d ' ' -f 1-2)" "$1 $2"
    else
        has "that isotherm moves" /tmp/run "this kernel has no weighted interleave"
        within 60 settled --nodes 0,1 --weights "$1:$2"
    fi
    exact "$1" "$2"
    kill "$block_pid"
    wait $run || true
    equal "weights after it" "$(weights)" "$WEIGHTS"
done

if [ "$WAY" = policy ]; then
    # Killed, and nobody there to put anything back but the next isotherm.
    isotherm interleave run --nodes 0,1 --weights 3:4 -- sleep 1000 2>/tmp/run &
    run=$!
    within 30 grep -q "0=3,1=4" /tmp/run
    kill -9 $run
    wait $run || true
    equal "weights after a kill" "$(weights | cut -d ' ' -f 1-2)" "3 4"
    isotherm interleave set restore 2>/tmp/said
    has "what was swept" /tmp/said "a run that was killed has left weights"
    equal "weights after the next" "$(weights)" "$WEIGHTS"

    # The cpuset changes while memory is touched: none lies outside.
    echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
    group=/sys/fs/cgroup/moving
    mkdir -p $group
    echo 0-1 >$group/cpuset.mems
    echo $$ >$group/cgroup.procs
    isotherm interleave run --nodes 0,1 -- $(touches 16) 2>/tmp/run &
    run=$!
    echo $$ >/sys/fs/cgroup/cgroup.procs
    within 30 grep -q "by the weights" /tmp/run
    for mems in 1-2 0-1 1-2; do
        usleep 50000
        echo $mems >$group/cpuset.mems
    done
    started $run 16
    inside() {
        [ "$(on 0)" -eq 0 ]
    }
    within 30 inside
    has "the policy that was rebound" "/proc/$block_pid/numa_maps" "weighted interleave:1-2.* anon=4096 "
    kill "$block_pid"
    wait $run || true
fi
