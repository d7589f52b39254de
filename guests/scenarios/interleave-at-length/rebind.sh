# The cpuset changes while memory is touched: none lies outside. This comes last: the program's own pages
# move too, and the emulator is slow where code has been.
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
group=/sys/fs/cgroup/moving
mkdir -p $group
echo 0-1 >$group/cpuset.mems
echo $$ >$group/cgroup.procs
isotherm interleave run --nodes 0,1 -- $(touches 64) 2>/tmp/run &
run=$!
echo $$ >/sys/fs/cgroup/cgroup.procs
within 30 grep -qs "by the weights" /tmp/run
for mems in 1-2 0-1 1-2; do
    usleep 50000
    echo $mems >$group/cpuset.mems
done
started $run 64
inside() {
    [ "$(on 0)" -eq 0 ]
}
within 30 inside
has "the policy that was rebound" "/proc/$block_pid/numa_maps" "weighted interleave:1-2.* anon=$pages "
kill "$block_pid"
wait $run || true
